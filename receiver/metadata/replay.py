"""From a log to the state that it stands for."""

from __future__ import annotations

import gc
from array import array
from contextlib import contextmanager
from typing import TYPE_CHECKING

from receiver.metadata.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.metadata.log import LogReader

__all__ = ["Replay"]


class Replay:
    """The state after the frames read so far, and the timestamps of all commits."""

    def __init__(self) -> None:
        self.state = State()
        self.commits = array("Q")

    def run(self, reader: LogReader) -> None:
        """Apply all frames.

        Raises:
            DamagedError: a frame is damaged, or contradicts those before it; what was before it
                is applied.
        """
        with _collector_paused():
            for at, frame in reader.frames():
                for commit in frame:
                    if commit.ts <= self.state.newest:
                        raise reader.damage(at, f"commit {commit.ts} follows {self.state.newest}")
                    try:
                        self.state.apply(commit)
                    except (KeyError, IndexError, ValueError) as error:
                        raise reader.damage(
                            at, f"commit {commit.ts} contradicts those before it: {error!r}"
                        ) from error
                    self.commits.append(commit.ts)
        if not self.state.uuid:
            raise reader.damage(reader.good, "the first commit is not whole")


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Rows are many and hold no cycles: looking for some would take a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
