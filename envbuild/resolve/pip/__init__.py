"""The second backend: pip-compile, as pip-tools has it."""
