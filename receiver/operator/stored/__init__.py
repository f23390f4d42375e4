"""Loaded files and what became of them: searched, quarantined, retired, deleted, stored."""
