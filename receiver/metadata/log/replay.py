"""From a log, or a checkpoint and the log behind it, to the state that they stand for."""

from __future__ import annotations

import gc
from array import array
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from receiver.metadata.log.segments import check_chain
from receiver.metadata.log.tlog import FIRST_OFFSET
from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_stored
from receiver.metadata.model.tag_layout import layout
from receiver.metadata.state.state import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from receiver.metadata.log.frames import LogReader
    from receiver.metadata.log.tlog import Tlog
    from receiver.metadata.schema import Schema

__all__ = ["Merged", "Replay"]

_FEW = 16
"""A commit with more series is no gain to merge."""
_MOST = 1 << 14
"""Commits that are held back."""


class _Columns(NamedTuple):
    """Series of a device; every list has one entry for each."""

    names: list[str]
    types: bytearray
    encodings: bytearray
    compressions: bytearray
    stamps: list[int]


class Merged:
    """Commits of a replay that make single series, taken together by device.

    A commit of one series costs a dozen calls; thousands of such, one after the other, are the
    common content of a log. Until something else comes they change nothing but the tree, each
    another place of it, so their order among devices does not matter: the series of a device are
    made in one go, each with the timestamp of its own commit. Devices come in the order of their
    first commits, and so do the nodes above them.
    """

    def __init__(self) -> None:
        self._devices: dict[str, _Columns] = {}
        self._held = 0

    def takes(self, commit: records.Commit) -> bool:
        """Hold a commit back if it is one of those; False if it has to be applied by itself."""
        ops = commit.ops
        if len(ops) != 1 or type(ops[0]) is not records.SeriesCreated or commit.tags_at >= 0:
            return False
        op = ops[0]
        if op.aligned or op.aliases or op.props or len(op.names) > _FEW or self._held >= _MOST:
            return False
        found = self._devices.get(op.device)
        if found is None:
            found = _Columns([], bytearray(), bytearray(), bytearray(), [])
            self._devices[op.device] = found
        found.names.extend(op.names)
        found.types.extend(op.types)
        found.encodings.extend(op.encodings)
        found.compressions.extend(op.compressions)
        if len(op.names) == 1:
            found.stamps.append(commit.ts)
        else:
            found.stamps.extend([commit.ts] * len(op.names))
        self._held += 1
        return True

    def flush(self, schema: Schema) -> None:
        """Apply what is held back."""
        if not self._held:
            return
        devices, self._devices, self._held = self._devices, {}, 0
        for device, each in devices.items():
            schema.changes.create_series(
                parse_stored(device),
                each.names,
                bytes(each.types),
                bytes(each.encodings),
                bytes(each.compressions),
                each.stamps[0],
                stamps=each.stamps,
            )


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
        self.tags_end = FIRST_OFFSET if tlog is None else tlog.end

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

    def _apply(self, commit: records.Commit, reader: LogReader, at: int) -> None:
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

    def _apply_tagged(self, commit: records.Commit) -> None:
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
