"""Files that lead into an image without envbuild: wrappers, modulefiles, kernel specs, forms."""
