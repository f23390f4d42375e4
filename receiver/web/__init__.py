"""The receiver's web layer."""
