"""What a task changes, decided from committed state and verified files.

Rooms: `known_files` what is here already, `told_deletions` what may go.
"""
