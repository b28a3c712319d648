"""What a job asks for: amounts, tables of parameters, nodes and devices, files."""
