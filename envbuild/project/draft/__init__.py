"""From what a project's files say to a draft of a recipe: base, packages, Debian packages."""
