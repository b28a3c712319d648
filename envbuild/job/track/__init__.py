"""What became of a job: its records, receipts, state, logs and results; how to end it."""
