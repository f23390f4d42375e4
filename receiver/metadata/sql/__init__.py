"""SQL over the schema: `parser` reads a statement, `executing` carries it out."""
