"""Trees packed once into the store: one blob of squashfs blocks and one index each."""
