"""What each check looks at, and what it says."""
