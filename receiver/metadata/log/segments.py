"""The segments of the log: `mlog-<first LSN>.tsf`, each going on where the one before ends.

A checkpoint starts a new segment, and what nobody needs any more goes in whole segments, the
oldest first. So whatever moment a power cut chooses, what is left is a run without a gap.
"""

from __future__ import annotations

import os
import re
from collections import deque
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from common import crash
from common.digests import read_blocks
from common.durable import Tree, temporary_name
from common.errors import DamagedError
from receiver.metadata.log.frames import LogReader, encode_log_head
from receiver.metadata.model.errors import HistoryGoneError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from receiver.metadata.model.records import Commit

__all__ = [
    "Places",
    "Segment",
    "behind",
    "check_chain",
    "commits_since",
    "missing",
    "open_segments",
    "raise_version",
    "remove_before",
    "segment_gone",
    "segment_name",
    "segments",
]

_PLACES = 16
_NAME = re.compile(r"mlog-([1-9][0-9]{0,18})\.tsf\Z")


class Segment(NamedTuple):
    """A segment, as its name tells."""

    first_lsn: int
    name: str


def segment_name(first_lsn: int) -> str:
    """The name of the segment that begins with an LSN."""
    return f"mlog-{first_lsn}.tsf"


def segments(tree: Tree) -> list[Segment]:
    """The segments of a schema directory, in order."""
    return sorted(Segment(int(match[1]), match.string) for match in tree.matching(_NAME))


def behind(found: Sequence[Segment], lsn: int) -> list[Segment]:
    """The segments that hold commits after `lsn`: the last that begins by then, and all later."""
    begin = max((at for at, each in enumerate(found) if each.first_lsn <= lsn + 1), default=0)
    return list(found[begin:])


@contextmanager
def open_segments(
    tree: Tree, wanted: Sequence[Segment], *, from_disk: bool = False
) -> Iterator[list[LogReader]]:
    """Readers of segments; all are open, so none can vanish while they are read.

    Args:
        tree: the schema directory.
        wanted: which.
        from_disk: forget what only the kernel's memory holds.

    Raises:
        FileNotFoundError: one has just been removed.
        DamagedError: the head of one is damaged.
        NewerLogError: a newer version of tsferry wrote one.
    """
    with ExitStack() as stack:
        readers = []
        for each in wanted:
            fd = tree.open_read(each.name)
            stack.callback(os.close, fd)
            if from_disk:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            reader = LogReader(fd, str(tree.path / each.name))
            if reader.first_lsn != each.first_lsn:
                raise reader.damage(0, f"it begins with LSN {reader.first_lsn}, unlike its name")
            readers.append(reader)
        yield readers


def check_chain(before: LogReader, after: LogReader) -> None:
    """See that a segment goes on where the one before, read to its end, stops.

    Raises:
        DamagedError: commits between them are missing.
    """
    if after.first_lsn != before.next_lsn:
        raise before.damage(
            before.good,
            f"it ends with LSN {before.next_lsn - 1}, the next segment begins with "
            f"{after.first_lsn}",
        )


class Places:
    """Where frames begin at which readers ended: for the next ones, who want what came since.

    May be used by several threads at once.
    """

    def __init__(self) -> None:
        self._known: deque[tuple[int, int, int]] = deque(maxlen=_PLACES)

    def note(self, reader: LogReader) -> None:
        """Remember the frame that a reader is at."""
        place = (reader.first_lsn, reader.next_lsn, reader.good)
        if place not in self._known:
            self._known.append(place)

    def bring(self, reader: LogReader, lsn: int) -> None:
        """Let a reader begin as near before an LSN as is known."""
        known = [
            (at, offset)
            for first, at, offset in tuple(self._known)
            if first == reader.first_lsn and at <= lsn
        ]
        if known:
            reader.go_to(*max(known))


def commits_since(
    directory: Path, lsn: int, newest: int, oldest: int, places: Places
) -> Iterator[Commit]:
    """Commits of the log from an LSN on, to the one with the timestamp `newest`.

    Beside a running engine: what is behind `newest`, half written perhaps, is not looked at. Of
    what is before the LSN only as much is read as `places` cannot spare.

    Raises:
        HistoryGoneError: the log begins later; `extra["oldest"]` is what is passed on.
        DamagedError: a segment is damaged, or missing between others.
    """
    with Tree(directory) as tree:
        there = behind(segments(tree), lsn - 1)
        if there[0].first_lsn > lsn:
            raise HistoryGoneError(
                f"the log begins with LSN {there[0].first_lsn}, {lsn} is needed",
                extra={"oldest": oldest},
            )
        with open_segments(tree, there) as readers:
            places.bring(readers[0], lsn)
            yield from _between(readers, lsn, newest, places)


def _between(readers: list[LogReader], lsn: int, newest: int, places: Places) -> Iterator[Commit]:
    for number, reader in enumerate(readers):
        if number:
            check_chain(readers[number - 1], reader)
        for _, frame in reader.frames():
            for at, commit in enumerate(frame, reader.next_lsn):
                if commit.ts > newest:
                    return
                if at >= lsn:
                    try:
                        yield commit
                    except GeneratorExit:  # who stops before the newest goes on here
                        places.note(reader)
                        raise
                if commit.ts == newest:
                    places.note(reader)
                    return


def raise_version(tree: Tree, reader: LogReader, name: str) -> None:
    """Give a log of an older version a head of this one: older programs refuse it from now on.

    A copy takes its place. The salt stays, so the frames are good as they are.
    """
    temporary = temporary_name()
    fd = tree.open_read(name)
    head = encode_log_head(reader.salt, reader.first_lsn)
    try:
        with tree.create(temporary, mode=0o640) as file:
            file.write(head)
            for block in read_blocks(fd, start=len(head)):
                file.write(block)
            file.sync()
    finally:
        os.close(fd)
    crash.point("mlog.version.written")
    tree.rename(temporary, name)
    crash.point("mlog.version.after")


def remove_before(tree: Tree, found: Sequence[Segment], lsn: int) -> list[str]:
    """Remove the segments whose commits are all at or below `lsn`, the oldest first.

    The last segment always stays. Returns the names.
    """
    gone = []
    for each, following in pairwise(found):
        if following.first_lsn > lsn + 1:
            break
        tree.unlink(each.name)
        crash.point("mlog.remove.removed")
        gone.append(each.name)
    return gone


def segment_gone(tree: Tree, first_lsn: int) -> DamagedError:
    """The error for a last segment that is not there, with what was committed into it."""
    what = str(tree.path / segment_name(first_lsn))
    return DamagedError(
        f"{what} is gone, although the checkpoint knows it: commits may be missing; restore it "
        "from a copy, or see `tsferry-receiver fsck`",
        extra={"file": what, "offset": 0},
    )


def missing(what: str, first_lsn: int, wanted: int) -> DamagedError:
    """The error for a log that begins too late."""
    return DamagedError(
        f"{what} is gone: the log begins with LSN {first_lsn}, {wanted} is needed; restore it from "
        "a copy, or see `tsferry-receiver fsck`",
        extra={"file": what, "offset": 0},
    )
