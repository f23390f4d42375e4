"""The commits of the kept history, the newest first: what each did, in a few words."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from common.wire.base import CommitTs
from receiver.metadata.model.errors import HistoryGoneError

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.metadata.model.records import Commit

__all__ = ["CommitLine", "CommitsPage", "list_commits"]

_STEP: Final = 10
_MOST: Final = 100_000
"""Operations that one page reads, and those of the commits that it then ends with."""
_NAMED: Final = 3
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_NAMES: Final = ("physical", "device", "path", "sender", "uuid", "name", "id")


@dataclass(frozen=True)
class CommitLine:
    """A commit.

    Attributes:
        ts: its timestamp.
        at: when that was, seconds since the epoch.
        did: kinds of operations and how many of each, the most first.
        named: what some of them are about.
        operations: how many there are.
    """

    ts: CommitTs
    at: float
    did: tuple[tuple[str, int], ...]
    named: tuple[str, ...]
    operations: int


@dataclass(frozen=True)
class CommitsPage:
    """Commits, the newest first.

    Attributes:
        commits: of the page.
        next: the page after has those before this timestamp; None if there are none.
        oldest: the oldest time that can be asked about.
        oldest_at: when that was.
    """

    commits: list[CommitLine]
    next: CommitTs | None
    oldest: int
    oldest_at: float


def list_commits(engine: Engine, *, before: int | None = None, count: int = 50) -> CommitsPage:
    """A page of commits.

    Args:
        engine: that has them.
        before: only those before this timestamp; None begins with the newest.
        count: of the page; large commits make it shorter.
    """
    found: list[CommitLine] = []
    read = 0
    end = engine.newest_commit + 1 if before is None else before
    more = True
    while more and len(found) < count and read < _MOST:
        with engine.reading():
            stamps = engine.window.commits
            at = bisect_left(stamps, end)
            part = list(stamps[max(0, at - min(_STEP, count - len(found))) : at])
            oldest = engine.oldest_answerable
        part = [each for each in part if each > oldest]
        if not part:
            more = False
            break
        try:
            lines = _lines(engine, part[0] - 1, end)
        except HistoryGoneError:  # it went on while it was read
            more = False
            break
        read += sum(each.operations for each in lines)
        found += reversed(lines)
        end = part[0]
    oldest = engine.oldest_answerable
    return CommitsPage(
        commits=found,
        next=end if more and found else None,
        oldest=oldest,
        oldest_at=engine.times.seconds(oldest),
    )


def _lines(engine: Engine, since: int, end: int) -> list[CommitLine]:
    found = []
    for commit in engine.log_since(max(since, engine.oldest_answerable)):
        if commit.ts >= end:
            break
        found.append(_line(engine, commit))
    return found


def _line(engine: Engine, commit: Commit) -> CommitLine:
    did = Counter(_kind(op) for op in commit.ops)
    named: dict[str, None] = {}
    for op in sorted(commit.ops, key=_is_of_a_file)[-_NAMED:]:
        about = [getattr(op, each, None) for each in _NAMES]
        named |= dict.fromkeys([each for each in about if each and isinstance(each, str)][:1])
    return CommitLine(
        ts=commit.ts,
        at=engine.times.seconds(commit.ts),
        did=tuple(did.most_common()),
        named=tuple(named),
        operations=len(commit.ops),
    )


def _is_of_a_file(op: object) -> bool:
    return hasattr(op, "physical")


def _kind(op: object) -> str:
    """`FileLoaded` is told as `file loaded`."""
    return _CAPITAL.sub(" ", type(op).__name__).lower()
