"""What a person wants: the direct requirements, the base they stand on, and how to check the result."""
