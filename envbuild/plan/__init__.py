"""How the image will be made, decided without touching anything: pure functions from recipe, lock and facts to text."""
