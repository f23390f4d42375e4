"""Counters and gauges, and the port that gives them out."""
