"""conda packages of an image: linked, ordered, compiled, recorded."""
