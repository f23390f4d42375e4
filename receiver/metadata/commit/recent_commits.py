"""What the last batches touched: whether what was judged before them still holds.

Commits of one batch are judged by the same committed state, and one goes into it only if what it
touches has nothing to do with the others (`Touched.allows`). By the same reasoning operations that
were judged a while ago need not be judged again, if nothing that was committed since has to do with
them: a transaction judges each statement when it is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from receiver.metadata.commit.guards import Guard
    from receiver.metadata.commit.touched import Touched
    from receiver.metadata.model.records import Op

__all__ = ["JudgedBeside", "JudgedOps", "RecentCommits"]

_MOST_BATCHES: Final = 128
_MOST_KEYS: Final = 20_000
"""Of all of them, some three megabytes; what was judged before older ones is judged again."""


class JudgedOps(NamedTuple):
    """Operations that the rules took, none of which has others added to it by a commit.

    Attributes:
        ops: read back from their bytes.
        pieces: their bytes, each by itself (`records.encode_op`).
        ts: the newest commit when the rules took them.
        touched: what they touch; the commit adds to it.
        guards: what must hold besides, where something that has to do with them was committed.
    """

    ops: Sequence[Op]
    pieces: Sequence[bytes]
    ts: int
    touched: Touched
    guards: Callable[[], Sequence[Guard]]


@dataclass(frozen=True, slots=True)
class JudgedBeside:
    """A large commit that the rules took before it stood in the line.

    Attributes:
        ts: the newest commit when they did.
        touched: what it touches, with the keys of its guards.
        guards: those that the line has to look at: there are others only on owners, of which the
            keys tell all.
    """

    ts: int
    touched: Touched
    guards: Sequence[Guard] = ()


class RecentCommits:
    """The last batches, for all threads; who leads the commits alone adds to them."""

    def __init__(self, newest: int) -> None:
        """Begin behind what is committed."""
        self._known: tuple[int, tuple[tuple[int, Touched], ...]] = (newest, ())
        self._keys = 0  # of these batches; for who adds

    def add(self, ts: int, touched: Touched) -> None:
        """A batch is about to become visible; `ts` is of its last commit."""
        floor, batches = self._known
        size = _keys(touched)
        if size > _MOST_KEYS:
            self.forget(ts)
            return
        gone = len(batches) - _MOST_BATCHES // 2 if len(batches) >= _MOST_BATCHES else 0
        held = self._keys - sum(_keys(each) for _, each in batches[:gone])
        while held + size > _MOST_KEYS:
            held -= _keys(batches[gone][1])
            gone += 1
        if gone:
            floor = batches[gone - 1][0]
            batches = batches[gone:]
        self._known = (floor, (*batches, (ts, touched)))
        self._keys = held + size

    def forget(self, ts: int) -> None:
        """Something up to a commit is about to become visible, nobody knows what it touches."""
        self._known = (ts, ())
        self._keys = 0

    def leave_alone(self, since: int, touched: Touched) -> bool:
        """Whether nothing that was committed since has to do with what is touched.

        False also where that is not known any more.
        """
        floor, batches = self._known
        if since < floor:
            return False
        for ts, each in reversed(batches):
            if ts <= since:
                break
            if not each.leaves_alone(touched):
                return False
        return True


def _keys(touched: Touched) -> int:
    return len(touched.written) + len(touched.shared)
