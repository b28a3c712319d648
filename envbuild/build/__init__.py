"""Make the image from the plan."""
