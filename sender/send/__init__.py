"""Bytes on the line: calls, uploads, tries and the limit on the line."""
