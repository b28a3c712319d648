"""What an answer of uv may have wrong: names of others, missing extras, ancient or foreign files."""
