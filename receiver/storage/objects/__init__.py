"""What is in the store is held against the catalogue, put right, and removed."""
