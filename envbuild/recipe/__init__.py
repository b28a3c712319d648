"""The recipe: the base, the direct requirements, and how to check the result."""
