"""Attacks, each with what it must not reach."""
