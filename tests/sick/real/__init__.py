"""Sick and healthy trees of real wheels, each proved by running the framework before check is asked."""
