"""Which files there are: data directories, the scan, and what is read from files."""
