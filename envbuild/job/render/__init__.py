"""The text of a job script: its container, its launcher, its data on the node."""
