"""What the lab shares: locked recipes with verdicts and images, taken only when they prove true."""
