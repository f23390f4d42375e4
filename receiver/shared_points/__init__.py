"""Which points files have in common: looked for by a process beside the server, which may die."""
