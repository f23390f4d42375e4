"""Memory of the process that nobody uses any more, and that the system does not have back."""

from __future__ import annotations

__all__ = ["give_back"]


def give_back() -> None:
    """Give back what the C library holds in reserve; where there is no such call, nothing.

    glibc keeps what was freed in between of what is used, for ever: behind work that took much,
    that is as much again as is used. It takes some milliseconds, without the interpreter's lock.
    """
    import ctypes  # who never gives back does without

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
