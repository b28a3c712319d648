"""Site files: what one cluster is, where its file lies, and how a new one is found out."""
