"""Source archives and source trees: read, packed, unpacked, and what building them needs."""
