"""What may go, of files and of points: what was told, and what guards against too much."""
