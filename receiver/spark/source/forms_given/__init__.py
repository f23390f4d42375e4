"""Rows as they are asked for: wide, long, of many files together."""
