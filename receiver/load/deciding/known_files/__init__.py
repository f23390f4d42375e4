"""What of a task is here already, under whatever name."""
