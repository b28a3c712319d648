"""The image file: written from parts, described, verified, compared, flattened, made again."""
