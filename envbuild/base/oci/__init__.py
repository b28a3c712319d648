"""Images of registries, archives and a Docker daemon, described without being run."""
