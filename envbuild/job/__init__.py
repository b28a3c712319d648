"""From an image to a job: what it needs (intent) and how a cluster says that (site) make a script."""
