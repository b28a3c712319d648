"""Checks of GPUs, of CUDA, and of what a framework computes with them."""
