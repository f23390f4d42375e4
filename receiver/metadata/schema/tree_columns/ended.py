"""What ended, in the order in which it did: the queue that history collects from.

What ends within one commit is queued from below: aliases, postings and leaves before their device,
a device before the nodes above it, so that nothing is dropped that still has something below it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from common.errors import DamagedError
from receiver.metadata.schema.tree_columns.growing_columns import (
    Ints,
    Section,
    append_many,
    restore,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NODE", "OFFSET", "POSTING", "TTL", "Ended"]

NODE: Final = 1
"""A row of the tree was deleted."""
POSTING: Final = 2
"""A series lost a tag."""
OFFSET: Final = 3
"""A series got other tags or attributes; by the entry of what it had."""
TTL: Final = 4
"""A storage group got another TTL; by the entry of the one it had."""
_COLUMNS: Final = ("ts", "kind", "what")


class Ended:
    """The queue: columns `ts`, `kind`, `what`."""

    __slots__ = ("_begin", *_COLUMNS)

    def __init__(self) -> None:
        self._begin = 0
        self.ts: Ints = array("q")
        self.kind: Ints = array("B")
        self.what: Ints = array("i")

    def __len__(self) -> int:
        return len(self.ts) - self._begin

    def put(self, kind: int, what: int, ts: int) -> None:
        """Something ended."""
        self.ts.append(ts)
        self.kind.append(kind)
        self.what.append(what)

    def put_many(self, kind: int, what: NDArray[Any], ts: int) -> None:
        """Many of a kind ended."""
        append_many(self.ts, np.full(len(what), ts))
        append_many(self.kind, np.full(len(what), kind))
        append_many(self.what, what)

    def take(self, horizon: int, budget: int) -> Iterator[tuple[int, int]]:
        """(kind, what) of the first things that ended at `horizon` or before."""
        at = self._begin
        end = min(len(self.ts), at + budget)
        while at < end and self.ts[at] <= horizon:
            yield self.kind[at], self.what[at]
            at += 1
        self._begin = at
        if at * 2 >= len(self.ts):
            for name in _COLUMNS:
                del getattr(self, name)[:at]
            self._begin = 0

    # -- checkpoint --

    def sections(self) -> list[Section]:
        """The columns by the names of their sections."""
        begin = self._begin
        return [(f"ended.{name}", getattr(self, name)[begin:]) for name in _COLUMNS]

    @classmethod
    def thaw(cls, sections: Mapping[str, memoryview | bytes], *, swap: bool) -> Ended:
        """What was frozen."""
        made = cls()
        for name in _COLUMNS:
            restore(sections, f"ended.{name}", getattr(made, name), swap=swap)
        if not len(made.ts) == len(made.kind) == len(made.what):
            raise DamagedError("the schema's sections ended.* do not fit together")
        return made
