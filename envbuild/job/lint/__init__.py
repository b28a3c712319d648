"""Traps of batch scripts that people have already: read, judged line by line, never changed."""
