"""Tests of what verbs do, in this process and without a command line."""
