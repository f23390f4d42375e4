"""What both ends share of connections: pace, certificates and time limits."""
