"""Questions about the schema and their answers, in pages: `statements`, `answers`, `cursors`."""
