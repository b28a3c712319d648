"""One file with everything that an image is made of, for machines without a network."""
