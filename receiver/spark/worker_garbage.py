"""Keeps what a worker of Spark has imported out of the garbage collector's sight.

PySpark collects garbage behind every task, and behind every question of its planner. Among all
objects of numba and its kind that takes 90 ms each time, more than reading a file of 10 MB.
"""

from __future__ import annotations

import gc

__all__ = ["keep_modules"]


def keep_modules() -> None:
    """Collect once, and never again look at what is there now; to be called behind the work.

    Only the first call of a process does anything.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
