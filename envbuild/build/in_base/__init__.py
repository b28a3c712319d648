"""What runs inside the base, in its own Python."""
