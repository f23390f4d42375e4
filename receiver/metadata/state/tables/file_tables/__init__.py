"""Tables of loaded files: rows, index, totals, and what merges put in their place."""
