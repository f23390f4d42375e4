"""Questions about the schema and their answers, in pages: `questions`, `answers`, `cursors`."""
