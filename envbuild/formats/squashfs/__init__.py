"""Squashfs 4.0 file systems: their fields, a reader, a writer, and the hashes of what one holds."""
