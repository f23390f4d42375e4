"""The data directories as a cache of the store: what leaves them, and what is brought back."""
