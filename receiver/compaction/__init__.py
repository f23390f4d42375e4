"""Compaction: many files of a partition are read in place of by few that hold the same points."""
