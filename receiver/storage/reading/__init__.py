"""Files read where the object store has them: by ranges, checked, and kept in memory for a while.

Whoever reads loaded files may use it, in any process; nothing of it touches a disk or the engine.
"""
