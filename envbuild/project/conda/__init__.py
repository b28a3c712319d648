"""Conda environments of projects, open or locked."""
