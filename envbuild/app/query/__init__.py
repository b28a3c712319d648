"""Questions about a lock, and its other forms."""
