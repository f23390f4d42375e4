"""What a sender tells a monitoring system: on a port of the daemon, or in a file."""
