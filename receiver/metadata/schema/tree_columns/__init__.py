"""The schema as columns: nodes, names, series, labels, without an object for each."""
