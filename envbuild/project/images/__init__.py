"""What images are described by: Dockerfiles, Apptainer definitions, cog.yaml."""
