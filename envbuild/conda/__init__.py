"""conda packages: channels, the solve, and what links them into an image."""
