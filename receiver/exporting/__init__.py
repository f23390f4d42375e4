"""The way back: committed files, merged, as a directory that a database loads as it is."""
