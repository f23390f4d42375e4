"""The schema on its way to a receiver: what its log has gained goes before the files."""
