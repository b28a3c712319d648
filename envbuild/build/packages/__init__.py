"""The files of Python packages: unpacked, imported from a folder, replaced, two of one path."""
