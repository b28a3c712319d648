"""Development layers, and what is added to a recipe."""
