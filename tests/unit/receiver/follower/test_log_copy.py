"""A copy of a log goes on with what it ends with, and with nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.durable import Tree
from receiver.follower.log_copy import LogCopy
from receiver.follower.log_source import (
    FetchedBlock,
    NotContinuedError,
    SourceLog,
    SourceSegment,
)
from receiver.metadata.engine import Engine
from receiver.metadata.log.segments import segments
from receiver.metadata.model import records

_NOW = 1.8e9


class Directory:
    """A receiver, read without a server; see `LogSource`."""

    url = "http://centre"
    waits = True

    def __init__(self, path: Path, block: int) -> None:
        self.path, self.block = path, block

    def read(self, found: SourceLog, name: str, begin: int, end: int) -> Iterator[FetchedBlock]:
        content = (self.path / name).read_bytes()
        for at in range(begin, end, self.block):
            data = content[at : min(at + self.block, end)]
            yield FetchedBlock(data, at + len(data))

    def commits(self, word: str, number: int) -> SourceLog:
        """What is there behind so many commits more, by a clock that stands back."""
        with Engine.open(self.path, background=False, clock=lambda: _NOW - 3600) as engine:
            for each in range(number):
                engine.commit([records.KeysWritten((), {"k": f"{word}{each}"})])
            return self._published(engine)

    def rotates(self) -> None:
        """The next commit begins a segment."""
        with Engine.open(self.path, background=False, clock=lambda: _NOW - 3600) as engine:
            engine.checkpoint()

    def _published(self, engine: Engine) -> SourceLog:
        now = engine.published()
        with Tree(self.path) as tree:
            first = [each.first_lsn for each in segments(tree)]
            sizes = [tree.stat(each.name).st_size for each in segments(tree)]  # type: ignore[union-attr]
        sizes[-1] = now.log_end
        found = map(SourceSegment, first, [*first[1:], now.lsn + 1], sizes)
        return SourceLog(engine.uuid, 0, now.lsn, now.ts, (), tuple(found), now.tags_end)


@pytest.mark.parametrize("rotates", [False, True])
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_a_source_that_counts_on_from_an_older_copy_is_not_followed_as_the_one_before(
    tmp_path: Path, block: int, rotates: bool
) -> None:
    """Number and time of each of its commits are those of one that it never had."""
    centre = Directory(tmp_path / "centre", block)
    with Engine.open(centre.path, background=False, clock=lambda: _NOW):
        pass
    centre.commits("before", 2)
    shutil.copytree(centre.path, tmp_path / "older")
    copy = LogCopy(tmp_path / "copy", centre)  # type: ignore[arg-type]
    at = centre.commits("one", 3)
    copy.make(at)
    goes_on = centre.commits("one", 1)
    assert copy.grow(goes_on, at.lsn)

    other = Directory(tmp_path / "older", block)
    now = other.commits("two", 4)
    assert (now.lsn, now.ts) == (goes_on.lsn, goes_on.ts)
    if rotates:  # what is new begins a file: none of it is in one that the copy has begun
        other.rotates()
        assert len(other.commits("two", 0).segments) == 2
    with pytest.raises(NotContinuedError, match="than the one that was followed"):
        LogCopy(tmp_path / "copy", other).grow(other.commits("two", 1), now.lsn)  # type: ignore[arg-type]
