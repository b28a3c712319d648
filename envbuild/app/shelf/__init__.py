"""What verbs do with shelves."""
