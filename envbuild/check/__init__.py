"""Does it work, and does it use the GPU: probes run inside the image, verdicts come out."""
