"""Files by content: artifacts, bases, images, verdicts; safe for several processes."""
