"""Images of registries, of archives and of a Docker daemon: fetched, kept and described without being run."""
