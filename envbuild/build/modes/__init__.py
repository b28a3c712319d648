"""The ways to build an image, and which of them this machine can go."""
