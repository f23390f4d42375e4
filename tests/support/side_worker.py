"""A process beside a test: does what it is asked, in plain words."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import msgspec

from receiver.background.side_process import die_with_parent, serve


class Wish(msgspec.Struct):
    """What to do: `say`, `wait`, `die` or `take` so many bytes.

    Or `bear` a process and tell its number, die and `leave` one that has the line, or `split` in
    two, which both come back.
    """

    what: str
    much: float = 0


class Said(msgspec.Struct):
    """What came of it; `session_nice` as the kernel says it, None without such."""

    text: str
    pid: int
    nice: int
    session: int
    session_nice: str | None


def fulfil(wish: Wish) -> Said:
    if wish.what == "wait":
        time.sleep(wish.much)
    if wish.what == "die":
        os._exit(7)
    text = wish.what
    if wish.what == "bear":
        text = str(subprocess.Popen(["sleep", "300"]).pid)
    if wish.what == "leave":
        if os.fork():
            os._exit(7)
        time.sleep(300)
    if wish.what == "split":
        text = "the other one" if os.fork() == 0 else text
    if wish.what == "take":
        try:
            text = str(len(bytearray(int(wish.much))))
        except MemoryError:
            text = "too much"
    group = Path("/proc/self/autogroup")
    session_nice = group.read_text().split(" ", 1)[1].strip() if group.exists() else None
    return Said(text, os.getpid(), os.nice(0), os.getsid(0), session_nice)


if __name__ == "__main__":
    die_with_parent()
    serve(fulfil, Wish)
