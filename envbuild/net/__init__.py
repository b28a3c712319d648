"""Reach other machines: indexes, downloads that resume, retries; every byte is hashed."""
