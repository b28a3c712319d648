"""A conflict in the words of the user: who wants what, what the base holds, what would help."""
