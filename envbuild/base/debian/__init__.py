"""Bases made from Debian packages, and the locked packages of Debian and Ubuntu images."""
