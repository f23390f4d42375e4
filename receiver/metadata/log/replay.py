"""From a log, or a checkpoint and the log behind it, to the state that they stand for."""

from __future__ import annotations

import gc
from array import array
from contextlib import contextmanager
from typing import TYPE_CHECKING

from receiver.metadata.log.merging import Merged
from receiver.metadata.log.segments import check_chain
from receiver.metadata.log.tlog import FIRST
from receiver.metadata.model.tag_layout import layout
from receiver.metadata.state.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from receiver.metadata.log.frames import LogReader
    from receiver.metadata.log.tlog import Tlog
    from receiver.metadata.model.records import Commit

__all__ = ["Replay"]


class Replay:
    """The state after the frames read so far.

    Attributes:
        state: with all commits up to `lsn`.
        lsn: of the last commit, 0 before the first.
        commits: timestamps of the commits that the history reaches back to.
        tags_end: where the tlog ends with these commits.
    """

    def __init__(
        self,
        state: State | None = None,
        *,
        lsn: int = 0,
        commits: array[int] | None = None,
        tlog: Tlog | None = None,
    ) -> None:
        """Begin with nothing, or with what a checkpoint holds.

        Args:
            state: of the checkpoint.
            lsn: of the checkpoint.
            commits: of the checkpoint.
            tlog: where entries of commits that are read are written if they are missing.
        """
        self.state = State() if state is None else state
        self.lsn = lsn
        self.commits = array("Q") if commits is None else commits
        self._tlog = tlog
        self._merged = Merged()
        self.tags_end = FIRST if tlog is None else tlog.end

    def run(self, reader: LogReader) -> None:
        """Apply all frames of the last segment.

        Raises:
            DamagedError: a frame is damaged, or contradicts those before it; what was before it
                is applied.
        """
        self.run_all([reader])

    def run_all(self, readers: Sequence[LogReader]) -> None:
        """Apply all frames of segments that follow each other; commits up to `lsn` are passed over.

        Raises:
            DamagedError: see `run`; or a segment does not begin where the one before ends.
        """
        with _collector_paused():
            for number, reader in enumerate(readers):
                if number:
                    check_chain(readers[number - 1], reader)
                try:
                    self._run(reader)
                finally:  # what was before a damage counts
                    self._flush(reader)
        last = readers[-1]
        if not self.state.uuid:
            raise last.damage(last.good, "the first commit is not whole")
        if last.next_lsn <= self.lsn:
            raise last.damage(
                last.good,
                f"it ends with LSN {last.next_lsn - 1}, the checkpoint has commits up to "
                f"{self.lsn}: what followed is gone",
            )

    def _run(self, reader: LogReader) -> None:
        state, merged, add = self.state, self._merged, self.commits.append
        for at, frame in reader.frames():
            skipped = self.lsn + 1 - reader.next_lsn
            if 0 < skipped <= len(frame) and frame[skipped - 1].ts != state.newest:
                raise reader.damage(
                    at, f"it has commit {frame[skipped - 1].ts}, the checkpoint {state.newest}"
                )
            for commit in frame[skipped:] if skipped > 0 else frame:
                ts = commit.ts
                if ts <= state.newest:
                    raise reader.damage(at, f"commit {ts} follows {state.newest}")
                if merged.takes(commit):
                    state.newest = ts
                else:
                    self._apply(commit, reader, at)
                add(ts)
                self.lsn += 1

    def _apply(self, commit: Commit, reader: LogReader, at: int) -> None:
        self._flush(reader)
        try:
            if commit.tags_at < 0:
                self.state.apply(commit)
            else:
                self._apply_tagged(commit)
        except (KeyError, IndexError, ValueError) as error:
            raise reader.damage(
                at, f"commit {commit.ts} contradicts those before it: {error!r}"
            ) from error

    def _apply_tagged(self, commit: Commit) -> None:
        laid = layout(commit.ops, commit.tags_at)
        if laid is None:
            raise ValueError(f"tags at {commit.tags_at} in a commit without tags")
        if self._tlog is not None:
            self._tlog.heal(commit.tags_at, laid.content)
        self.tags_end = commit.tags_at + len(laid.content)
        self.state.apply(commit, laid.offsets)

    def _flush(self, reader: LogReader) -> None:
        try:
            self._merged.flush(self.state.schema)
        except (KeyError, IndexError, ValueError) as error:
            raise reader.damage(
                reader.good, f"commits before this contradict each other: {error!r}"
            ) from error


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
