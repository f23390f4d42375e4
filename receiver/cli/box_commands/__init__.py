"""Commands that set a receiver up, run it, and say whether it can run: of the box itself."""
