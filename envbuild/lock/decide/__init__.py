"""From a recipe to a lock, step by step."""
