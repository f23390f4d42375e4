"""Bytes on the line: calls, uploads, tries and the limit on the line.

Rooms: `connection` to a receiver, `sent_bytes` of files.
"""
