"""What probes have in common: each text is put before those that need it."""
