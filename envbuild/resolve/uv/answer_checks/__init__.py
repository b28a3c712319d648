"""What may be wrong in an answer of uv: foreign names or files, missing extras, old releases."""
