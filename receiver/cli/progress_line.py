"""How far a long work on the store is, on one line of a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from common.terminal import LiveLine, size_text
from receiver.storage.step_progress import StepProgress, ToldProgress, untold

__all__ = ["showing_progress"]

_EVERY = 0.2
"""Seconds between two states of the line."""


@contextmanager
def showing_progress(as_json: bool) -> Iterator[ToldProgress]:
    """Show on a terminal, on one line of standard error, how far a long work is; no trace stays."""
    line, shown, step, begun = LiveLine(), 0.0, "", 0.0

    def told(now: StepProgress) -> None:
        nonlocal shown, step, begun
        clock = time.monotonic()
        if now.step != step:
            step, begun = now.step, clock
        elif clock - shown < _EVERY:
            return
        shown = clock
        line.say(_progress_text(now, clock - begun))

    if as_json or not line.is_seen:
        yield untold
        return
    try:
        yield told
    finally:
        line.clear()


def _progress_text(now: StepProgress, passed: float) -> str:
    text = f"{now.step}: {now.done} of {now.total}"
    if now.total_bytes:
        text += f", {size_text(now.bytes)} of {size_text(now.total_bytes)}"
    share = now.bytes / now.total_bytes if now.total_bytes else now.done / max(1, now.total)
    return text + (f", {passed / share * (1 - share):.0f} s left" if share else "")
