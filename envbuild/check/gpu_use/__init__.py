"""Who uses the GPUs of this machine now."""
