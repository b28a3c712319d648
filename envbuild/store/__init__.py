"""Files kept by content: artifacts, bases, images and verdicts, safe under concurrency and interruption."""
