"""How the image will be made, decided without touching anything.

Pure functions from recipe, lock and facts to text.
"""
