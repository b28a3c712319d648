"""Read a foreign project (its lists, its definitions, its code) into a draft of a recipe."""
