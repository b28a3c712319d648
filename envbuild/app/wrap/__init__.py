"""Ways into an image without envbuild."""
