"""Loaded files are brought into the store, behind their commits."""
