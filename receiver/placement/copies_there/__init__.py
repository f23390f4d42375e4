"""What nodes have, may have, and are doubted to have."""
