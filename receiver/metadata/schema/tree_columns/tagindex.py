"""The tag index: tag key -> value -> series, as of any commit.

A posting says that a series had a tag from one commit to another. Postings are columns; the ones of
a (key, value) are together in `order`, which is sorted by it and merged with what is new only when
that has become much, or somebody asks. Those of a series are a chain, so that the change of its
tags needs no other knowledge.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from common.errors import DamagedError
from receiver.metadata.schema.tree_columns.growing_columns import (
    Ints,
    Section,
    reach,
    restore,
    view,
)
from receiver.metadata.schema.tree_columns.hashindex import PairIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from receiver.metadata.schema.tree_columns.name_table import NameTable

__all__ = ["TagIndex"]

_LOOSE: Final = 4096
"""New postings that a question looks through one by one (by numpy: some ten microseconds)."""
_SHARE: Final = 8
"""New ones are merged at the latest when they are this part of all: each is moved a few times."""
_COLUMNS: Final = (
    "key", "value", "count", "free_pairs", "pair", "row", "created", "deleted", "next", "prev",
    "head", "past", "order", "loose", "dead", "free",
)  # fmt: skip


class TagIndex:
    """Postings of tags.

    Columns by pair: `key`, `value` (numbers of `names`), `count` (postings that are kept). Columns
    by posting: `pair`, `row` (-1: dropped), `created`, `deleted` (0: holds), `next` and `prev` in
    the chain. By row, the first of a chain: `head`, of what it has (or had when it was deleted);
    `past`, of what it lost, the last lost first. `order`: postings by pair; `loose`: those not in
    it yet; `dead`: those in it that are dropped.
    """

    __slots__ = ("_index", "_names", *_COLUMNS)

    def __init__(self, names: NameTable) -> None:
        self._names = names
        self.key: Ints = array("i")
        self.value: Ints = array("i")
        self.count: Ints = array("i")
        self.free_pairs: Ints = array("i")
        self.pair: Ints = array("i")
        self.row: Ints = array("i")
        self.created: Ints = array("q")
        self.deleted: Ints = array("q")
        self.next: Ints = array("i")
        self.prev: Ints = array("i")
        self.head: Ints = array("i")
        self.past: Ints = array("i")
        self.order: Ints = array("i")
        self.loose: Ints = array("i")
        self.dead: Ints = array("i")
        self.free: Ints = array("i")
        self._index = PairIndex(self.key, self.value)

    @property
    def entries(self) -> int:
        """Tags that hold now, over all series."""
        return int(np.count_nonzero((view(self.row) >= 0) & (view(self.deleted) == 0)))

    # -- changes --

    def add(self, row: int, tags: Mapping[str, str], ts: int) -> int:
        """A series has these tags from now on; it has none of them yet.

        Returns:
            bytes of their values.
        """
        reach(self.head, row + 1, -1)
        intern, lengths = self._names.intern, self._names.lengths
        size = 0
        for key, value in tags.items():
            number = intern(value)
            self._post(row, self._pair(intern(key), number), ts)
            size += lengths[number]
        return size

    def end_others(
        self, row: int, tags: Mapping[str, str], ts: int
    ) -> tuple[list[int], dict[str, str]]:
        """A series has from now on no tags but these.

        Returns:
            the postings that end, and those of the tags that it does not have yet.
        """
        left = dict(tags)
        ended = []
        for posting in self.of(row):
            key, value = self._texts(posting)
            if left.get(key) == value:
                del left[key]
            else:
                self.deleted[posting] = ts
                ended.append(posting)
                self._unlink(posting)
                reach(self.past, row + 1, -1)
                self._link(self.past, posting)
        return ended, left

    def _link(self, firsts: Ints, posting: int) -> None:
        row = self.row[posting]
        after = firsts[row]
        self.next[posting], self.prev[posting] = after, -1
        if after >= 0:
            self.prev[after] = posting
        firsts[row] = posting

    def _unlink(self, posting: int) -> None:
        before, after = self.prev[posting], self.next[posting]
        if after >= 0:
            self.prev[after] = before
        if before >= 0:
            self.next[before] = after
            return
        row = self.row[posting]
        firsts = self.head if self.head[row] == posting else self.past
        firsts[row] = after

    def end(self, rows: NDArray[Any], ts: int) -> NDArray[np.int32]:
        """The series are deleted; gives the postings that end with them."""
        current = rows[rows < len(self.head)]
        if not len(current):
            return np.empty(0, np.int32)
        deleted, after = view(self.deleted), view(self.next)
        current = view(self.head)[current]
        ended = []
        while len(current := current[current >= 0]):
            holds = current[deleted[current] == 0]
            deleted[holds] = ts
            ended.append(holds)
            current = after[current]
        return np.concatenate(ended) if ended else np.empty(0, np.int32)

    def _pair(self, key: int, value: int) -> int:
        pair = self._index.find(key, value)
        if pair >= 0:
            return pair
        if self.free_pairs:
            pair = self.free_pairs.pop()
            self.key[pair], self.value[pair], self.count[pair] = key, value, 0
        else:
            pair = len(self.key)
            self.key.append(key)
            self.value.append(value)
            self.count.append(0)
        self._index.put(key, value, pair)
        return pair

    def _post(self, row: int, pair: int, ts: int) -> None:
        self.count[pair] += 1
        if self.free:
            posting = self.free.pop()
            self.pair[posting], self.row[posting] = pair, row
            self.created[posting], self.deleted[posting] = ts, 0
        else:
            posting = len(self.pair)
            self.pair.append(pair)
            self.row.append(row)
            self.created.append(ts)
            self.deleted.append(0)
            self.next.append(-1)
            self.prev.append(-1)
        self._link(self.head, posting)
        self.loose.append(posting)
        if len(self.loose) > _LOOSE and len(self.loose) * _SHARE > len(self.order):
            self._merge()

    def _merge(self) -> None:
        """Take loose postings into the order."""
        pairs = view(self.pair)
        loose = view(self.loose).astype(np.int64)
        loose = np.sort(pairs[loose].astype(np.int64) << 32 | loose)
        fresh = (loose & 0xFFFFFFFF).astype(np.int32)
        order = view(self.order)
        places = np.searchsorted(pairs[order], loose >> 32, "right")
        merged = np.insert(order, places, fresh)
        self.order = array("i", merged.tobytes())
        self.loose = array("i")

    # -- questions --

    def of(self, row: int, at: int | None = None) -> list[int]:
        """The postings of a series at a time."""
        posting = self.head[row] if row < len(self.head) else -1
        found = []
        while posting >= 0:
            if self._holds(posting, at):
                found.append(posting)
            posting = self.next[posting]
        if at is None or row >= len(self.past):
            return found
        posting = self.past[row]
        while posting >= 0 and self.deleted[posting] > at:
            if self.created[posting] <= at:
                found.append(posting)
            posting = self.next[posting]
        return found

    def tags(self, row: int, at: int | None = None) -> dict[str, str]:
        """The tags of a series at a time, by key."""
        return dict(sorted(self._texts(posting) for posting in self.of(row, at)))

    def find(self, key: str, value: str, at: int | None = None) -> NDArray[np.int32]:
        """Rows of the series that have a tag, in no order."""
        pair = self._index.find(self._names.find(key), self._names.find(value))
        if pair < 0:
            return np.empty(0, np.int32)
        return self._rows(self._postings(pair), at)

    def _postings(self, pair: int) -> NDArray[Any]:
        if len(self.loose) > _LOOSE:
            self._merge()
        begin = bisect_left(self.order, pair, key=self.pair.__getitem__)
        end = bisect_right(self.order, pair, begin, key=self.pair.__getitem__)
        loose = view(self.loose)
        fresh = loose[view(self.pair)[loose] == pair]
        return np.concatenate((view(self.order)[begin:end], fresh))

    def _rows(self, postings: NDArray[Any], at: int | None) -> NDArray[np.int32]:
        rows: NDArray[np.int32] = view(self.row)[postings[self.visible(postings, at)]]
        return rows

    def visible(self, postings: NDArray[Any] | slice, at: int | None) -> NDArray[np.bool_]:
        """Which of many postings hold at a time."""
        deleted: NDArray[np.int64] = view(self.deleted)[postings]
        there: NDArray[np.bool_] = deleted == 0
        if at is not None:
            there |= deleted > at
            there &= view(self.created)[postings] <= at
        there &= view(self.row)[postings] >= 0
        return there

    def _holds(self, posting: int, at: int | None) -> bool:
        deleted = self.deleted[posting]
        if at is None:
            return not deleted
        return self.created[posting] <= at and (not deleted or deleted > at)

    def _texts(self, posting: int) -> tuple[str, str]:
        pair = self.pair[posting]
        return self._names.text(self.key[pair]), self._names.text(self.value[pair])

    def value_lengths(self, postings: NDArray[Any]) -> NDArray[Any]:
        """Bytes of the value of each posting."""
        lengths: NDArray[Any] = view(self._names.lengths)[
            view(self.value)[view(self.pair)[postings]]
        ]
        return lengths

    def value_length(self, posting: int) -> int:
        """Bytes of the value of a posting."""
        return self._names.lengths[self.value[self.pair[posting]]]

    # -- letting go --

    def drop(self, posting: int) -> None:
        """A posting that ended is no more."""
        pair = self.pair[posting]
        self._unlink(posting)
        self.row[posting] = -1
        self.dead.append(posting)
        self.count[pair] -= 1
        if len(self.dead) > _LOOSE and len(self.dead) * _SHARE > len(self.pair):
            self.purge()

    def purge(self) -> None:
        """Take dropped postings out of the order, so that they can be used again."""
        self._merge()
        order = view(self.order)
        kept = order[view(self.row)[order] >= 0]
        self.order = array("i", kept.tobytes())
        self.free.extend(self.dead)
        self.dead = array("i")
        # Only now: while a posting stands in the order, its pair must not change.
        unused = np.flatnonzero((view(self.count) == 0) & (view(self.key) >= 0)).tolist()
        for pair in unused:
            self._index.remove(pair)
            self.key[pair] = -1
        self.free_pairs.extend(unused)

    def mark_names(self, used: NDArray[np.bool_]) -> None:
        """Mark the numbers of the texts that are needed here."""
        key, value = view(self.key), view(self.value)
        there = key >= 0
        used[key[there]] = True
        used[value[there]] = True

    # -- checkpoint --

    def sections(self) -> list[Section]:
        """The columns by the names of their sections."""
        parts: list[Section] = [(f"tags.{name}", getattr(self, name)) for name in _COLUMNS]
        parts.append(("tags.slots", self._index.slots))
        return parts

    @classmethod
    def thaw(
        cls, names: NameTable, sections: Mapping[str, memoryview | bytes], *, swap: bool
    ) -> TagIndex:
        """What was frozen."""
        made = cls(names)
        for name in _COLUMNS:
            restore(sections, f"tags.{name}", getattr(made, name), swap=swap)
        slots = restore(sections, "tags.slots", array("i"), swap=swap)
        pairs = {len(made.key), len(made.value), len(made.count)}
        columns = (made.pair, made.row, made.created, made.deleted, made.next, made.prev)
        postings = {len(each) for each in columns}
        whole = len(slots) >= 2 and not len(slots) & len(slots) - 1
        if not whole or len(pairs) != 1 or len(postings) != 1:
            raise DamagedError("the schema's sections tags.* do not fit together")
        used = int(np.count_nonzero(view(slots) >= 0))
        made._index = PairIndex(made.key, made.value, slots, used)
        return made
