"""Scripts that run in the base's own Python (3.6 and newer), with nothing installed."""
