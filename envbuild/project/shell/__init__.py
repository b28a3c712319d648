"""Lines of shell that install something: those of images, READMEs and notebooks."""
