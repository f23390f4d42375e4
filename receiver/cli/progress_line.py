"""How far a long work of a command is, on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from common.progress_bar import WorkProgress
from common.step_progress import StepProgress, ToldProgress, untold

__all__ = ["showing_progress"]


@contextmanager
def showing_progress(as_json: bool) -> Iterator[ToldProgress]:
    """Show how far a long work is, but where JSON is wanted; of a bar no trace stays."""
    progress = WorkProgress(quiet=as_json)

    def told(now: StepProgress) -> None:
        note = f"{now.done} of {now.total}"
        if now.total_bytes:
            progress.show(now.step, now.bytes, now.total_bytes, size=True, note=note)
        else:
            progress.show(now.step, now.done, now.total)

    try:
        yield untold if as_json else told
    finally:
        progress.clear()
