"""Waiting for the end of threads."""

from __future__ import annotations

import threading

__all__ = ["join_begun"]


def join_begun(thread: threading.Thread | None, timeout: float | None = None) -> None:
    """Wait for a thread's end, if it ever began.

    Whoever is interrupted between making a thread and its first step (Ctrl-C, in the first second
    of a server) closes what it has, and `join` raises of one that did not begin.

    Args:
        thread: the thread; None for none.
        timeout: seconds to wait at most.
    """
    if thread is not None and thread.ident is not None:
        thread.join(timeout)
