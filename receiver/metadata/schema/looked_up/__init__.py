"""Series, devices and nodes, found by name, pattern or label."""
