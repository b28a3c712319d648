"""The shelf as a folder of static pages for the lab's web space."""
