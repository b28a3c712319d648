"""What a job needs (intent) and how a cluster says that (site) make a script."""
