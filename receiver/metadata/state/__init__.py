"""What the engine knows, in memory: tables that commits are applied to."""
