"""A merge itself: reads what goes in, writes what comes out, compares the two."""
