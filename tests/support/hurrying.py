"""Programs of ours that stand back behind all others, told to do so no more.

What merges and proves has the lowest priority there is. Beside other tests, which keep all
processors busy, it would hardly come to work, and who waits for it would see nothing for minutes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["hurry", "hurrying"]


def hurry(pid: int) -> None:
    """Give a process and all that it has started the priority that programs have.

    Where we may not (who is not root may only stand back), it takes its time.
    """
    with suppress(OSError):  # or it has ended meanwhile
        for task in os.listdir(f"/proc/{pid}/task"):
            _hurry_one(int(task))
    _hurry_below(pid)


@contextmanager
def hurrying() -> Iterator[None]:
    """The same for whatever this process starts in the block."""
    over = threading.Event()

    def again() -> None:
        while not over.wait(0.1):
            _hurry_below(os.getpid())

    thread = threading.Thread(target=again, name="hurrying")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _hurry_below(pid: int) -> None:
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for each in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                hurry(int(each))


def _hurry_one(task: int) -> None:
    with suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, task) > 0:
            os.setpriority(os.PRIO_PROCESS, task, 0)
    session = Path(f"/proc/{task}/autogroup")
    with suppress(OSError):  # a kernel without; or one that has made ten such changes this second
        if not session.read_text().endswith("nice 0\n"):
            session.write_bytes(b"0")
