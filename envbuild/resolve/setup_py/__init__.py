"""Read a setup.py from its text: nothing in it is run."""
