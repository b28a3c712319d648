"""What the code of a project imports and loads."""
