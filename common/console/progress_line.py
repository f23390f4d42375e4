"""How far a long work of a command is, on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from common.console.progress_bar import WorkProgress
from common.console.step_progress import StepProgress, ToldProgress, untold

__all__ = ["show_step", "showing_progress"]


@contextmanager
def showing_progress(as_json: bool) -> Iterator[ToldProgress]:
    """Show how far a long work is, but where JSON is wanted; of a bar no trace stays."""
    progress = WorkProgress(quiet=as_json)

    try:
        yield untold if as_json else lambda now: show_step(progress, now)
    finally:
        progress.clear()


def show_step(progress: WorkProgress, now: StepProgress) -> None:
    """Show a moment: by its bytes where they are known, else by its count."""
    if now.total_bytes:
        note = f"{now.done} of {now.total}"
        progress.show(now.step, now.bytes, now.total_bytes, size=True, note=note)
    elif now.total:
        progress.show(now.step, now.done, now.total)
    else:
        progress.say(now.step)
