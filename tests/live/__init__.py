"""Real database servers as the edge; only with `pytest --servers DIR` (see scripts/live)."""
