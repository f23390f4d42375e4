"""What the engine speaks of: records, paths, types, errors. Imports nothing of the engine."""
