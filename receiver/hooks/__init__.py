"""What a receiver tells its hooks: what it commits, and what stands with it and its edges."""
