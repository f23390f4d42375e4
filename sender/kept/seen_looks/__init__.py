"""What looks at the data directories have seen, and when."""
