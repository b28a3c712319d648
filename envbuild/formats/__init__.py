"""Read and write file formats: OCI documents, SIF, squashfs, zip."""
