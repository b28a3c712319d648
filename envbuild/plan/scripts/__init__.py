"""Programs that a written definition carries: they run in the base's Python (3.6 or newer), with nothing installed."""
