"""Compaction: many files of a partition are read in place of by few that hold the same points.

Rooms: `worth_merging` what and when, `making` one merge, from its inputs to the comparison.
"""
