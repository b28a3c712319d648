"""What was decided: every artifact by file name, size and sha256, with no host in it."""
