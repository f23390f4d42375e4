"""Storage nodes and data directories as an operator sees and orders them."""
