"""What an image starts from, and the facts read out of it."""
