"""Reports: the table, JSON and page that people read, and the files that are kept."""
