"""What the three programs share of a command line: options, terminals, progress, logs and JSON."""
