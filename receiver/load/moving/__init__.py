"""Moves of loaded files from one data directory to another: copied, committed, then taken away.

It may touch the data directories and the engine. It imports what loads beside it, and nothing above
the load side.
"""
