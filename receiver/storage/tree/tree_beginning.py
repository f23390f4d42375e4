"""The tree as of one commit, from the engine's rows, while commits go on.

Rows are taken in slices, each as of the moment it is taken. What the log has of the time in
between tells which of them were taken too late; with that the tree is the one of the commit that
it began with, exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from receiver.metadata.model import records
from receiver.metadata.query.file_tree import FileMove, moves_of
from receiver.metadata.state.table_rows import FileState
from receiver.storage.tree.tree_rows import (
    EngineFile,
    ForgottenError,
    NodeRow,
    TreeFollower,
    file_row,
    known_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from receiver.metadata.engine import Engine

__all__ = ["BegunTree", "begin_tree"]

_SLICE: Final = 500
"""Rows under one hold of the lock: a millisecond or two."""
_HIDDEN = (FileState.QUARANTINED, FileState.SUPERSEDED)


class BegunTree(NamedTuple):
    """Where a tree begins.

    Attributes:
        ts: the commit that it is as of.
        follower: goes on from there.
        rows: of directories, of files that are out of sight, and of those that were taken too late.
    """

    ts: int
    follower: TreeFollower
    rows: list[NodeRow]


def begin_tree(engine: Engine, take: Callable[[list[NodeRow]], None]) -> BegunTree:
    """Go through all files.

    Args:
        engine: that knows them.
        take: given rows in order of their paths, slice by slice.

    Raises:
        ForgottenError: a file was forgotten meanwhile.
        HistoryGoneError: it took longer than the history reaches.
    """
    with engine.reading() as state:
        ts, table = state.newest, state.file_table
        out = [row for each in _HIDDEN for row in table.among(each, None, len(table.rows))]
        hidden = {row.physical for row in (*out, *table.deleted())}
        out_of_sight = [EngineFile(state, row) for row in out]
    follower = TreeFollower.of_files(hidden)
    ends: list[str] = []
    seen_at: list[int] = []
    for known, newest in _slices(engine):
        seen_at.append(newest)
        if known:
            ends.append(known[-1].row.physical)
        here = [each for each in known if each.row.created <= ts]
        for each in here:
            follower.add(each)
        take([file_row(each, each.row.created, ts) for each in here])

    def seen(physical: str) -> int:
        """The newest commit when the slice was taken that has, or would have, a path."""
        return seen_at[min(bisect_left(ends, physical), len(seen_at) - 1)]

    rows = [follower.leave(each) for each in out_of_sight]
    rows += _late(engine, ts, hidden, seen, follower)
    return BegunTree(ts, follower, [*follower.directory_rows(ts), *rows])


def _slices(engine: Engine) -> Iterator[tuple[list[EngineFile], int]]:
    after: str | None = None
    while True:
        with engine.reading() as state:
            rows = state.file_table.catalogue(after, _SLICE)
            known = [EngineFile(state, row) for row in rows]
            newest = state.newest
        yield known, newest
        if len(rows) < _SLICE:
            return
        after = rows[-1].physical


def _late(
    engine: Engine,
    ts: int,
    hidden: set[str],
    seen: Callable[[str], int],
    follower: TreeFollower,
) -> Iterator[NodeRow]:
    first: dict[str, FileMove] = {}
    last: dict[str, FileMove] = {}
    then = set(hidden)
    for commit in engine.log_since(ts):
        for physical, move in moves_of(commit, then).items():
            if physical not in first and isinstance(move.op, records.FileLoaded):
                continue  # it was not there, and is not taken
            if commit.ts <= seen(physical):
                first.setdefault(physical, move)
                last[physical] = move
    paths = list(first)
    for at in range(0, len(paths), _SLICE):
        some = paths[at : at + _SLICE]
        with engine.reading() as state:
            known = known_files(state, some)
        for physical in some:
            each = known.get(physical)
            if each is None:
                raise ForgottenError(physical)
            was, is_taken = not first[physical].is_seen, last[physical].is_seen
            if each.row.created > ts or was is is_taken:
                continue
            follower.add(each, 1 if was else -1)
            if was:
                yield file_row(each, each.row.created, ts)
            else:
                yield file_row(each, each.row.created, ts, delete_at=ts, ended_by="deleted")
