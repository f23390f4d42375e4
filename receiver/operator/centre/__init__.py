"""Loading at the centre without an edge: what a load brings, judges, and commits."""
