"""What lies under the data directories of a receiver: which are there, and which disk is whose."""
