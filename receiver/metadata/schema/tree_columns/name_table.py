"""Texts by number: each is kept once, as UTF-8, in one piece of memory.

Names of nodes, keys and values of tags are all here. A byte that no UTF-8 has stands behind each
text, so that a search through the whole piece never finds what is half in one and half in the next.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np

from common.errors import DamagedError
from receiver.metadata.schema.tree_columns.growing_columns import Ints, Section, grow, restore, view
from receiver.metadata.schema.tree_columns.hashindex import fill_slots

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NameTable", "containing"]

_GOLDEN: Final = 0x9E3779B97F4A7C15
_M: Final = (1 << 64) - 1
_END: Final = 0xFF
_SMALLEST: Final = 64
_FULL: Final = 0.6
_CACHED: Final = 1 << 13
"""Texts whose number is at hand; names of measurements come again and again."""
_TEXTS: Final = 1 << 15
"""The same the other way: a page of an answer has some ten thousand, and names them twice."""
_MANY: Final = 1 << 10
"""From so many texts that are not at hand on numpy looks for all of them at once."""
_COMPARED: Final = 1 << 11
"""Fewer texts are put in order one by one; numpy is faster with more of them."""
_WORDS: Final = 8
"""Words of eight bytes that texts are compared by at once; what is alike so far is looked at."""


class NameTable:
    """Texts and their numbers, from 0 on. Numbers of texts that nobody uses are given again."""

    __slots__ = (
        "_blob", "_dead", "_free", "_hashes", "_ids", "_lengths", "_mask", "_shift", "_slots",
        "_starts", "_texts", "_used",
    )  # fmt: skip

    def __init__(self) -> None:
        self._blob = bytearray()
        self._starts: Ints = array("Q")
        self._lengths: Ints = array("I")
        self._hashes: Ints = array("I")
        self._free: Ints = array("i")
        self._dead = 0
        self._used = 0
        self._ids: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._set_slots(array("i", [-1]) * _SMALLEST)

    def __len__(self) -> int:
        """One more than the highest number ever given."""
        return len(self._starts)

    @property
    def used(self) -> int:
        """Texts that are kept."""
        return self._used

    @property
    def lengths(self) -> Ints:
        """Bytes of each text."""
        return self._lengths

    def _set_slots(self, slots: Ints) -> None:
        self._slots = slots
        self._mask = len(slots) - 1
        self._shift = 65 - len(slots).bit_length()

    # -- text to number --

    def find(self, text: str) -> int:
        """The number of a text, -1 if it is not here."""
        found = self._ids.get(text)
        if found is not None:
            return found
        encoded = text.encode("utf-8", "surrogatepass")
        found = self._probe(encoded, crc32(encoded))[0]
        if found >= 0:
            self._remember(text, found)
        return found

    def find_many(self, texts: Sequence[str]) -> list[int]:
        """The number of each text, -1 where it is not here."""
        ids = self._ids
        found = list(map(ids.get, texts))
        if None not in found:
            return found  # type: ignore[return-value]
        if found.count(None) >= _MANY:
            return self._search(texts)[0].tolist()  # type: ignore[no-any-return]
        return [
            self.find(text) if each is None else each
            for each, text in zip(found, texts, strict=True)
        ]

    def intern(self, text: str) -> int:
        """The number of a text, which is taken in if it is new."""
        found = self._ids.get(text)
        if found is not None:
            return found
        encoded = text.encode("utf-8", "surrogatepass")
        check = crc32(encoded)
        found, at = self._probe(encoded, check)
        if found < 0:
            if self._used >= len(self._slots) * _FULL:
                self._rebuild(self._used + 1)
                at = self._probe(encoded, check)[1]
            found = self._slots[at] = self._take(encoded, check)
            self._used += 1
        self._remember(text, found)
        return found

    def intern_many(self, texts: Sequence[str]) -> list[int]:
        """The number of each text; new ones are taken in."""
        found = list(map(self._ids.get, texts))
        if None not in found:
            return found  # type: ignore[return-value]
        if found.count(None) >= _MANY:
            return self._intern_many(texts)
        return [
            self.intern(text) if each is None else each
            for each, text in zip(found, texts, strict=True)
        ]

    def _intern_many(self, texts: Sequence[str]) -> list[int]:
        numbers, encoded, checks = self._search(texts)
        missing = np.flatnonzero(numbers < 0)
        places = missing.tolist()
        new = {encoded[each]: each for each in reversed(places)}  # where each stands first
        if places and len(new) == len(places):
            numbers[missing] = self._take_many([encoded[each] for each in places], checks[missing])
        elif new:
            taken = self._take_many(list(new), checks[list(new.values())])
            given = dict(zip(new, taken.tolist(), strict=True))
            numbers[missing] = [given[encoded[each]] for each in places]
        return numbers.tolist()  # type: ignore[no-any-return]

    def _search(
        self, texts: Sequence[str]
    ) -> tuple[NDArray[np.int32], list[bytes], NDArray[np.uint32]]:
        """The number of each text, -1 for none; its bytes, and their checksum."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        checks = np.fromiter(map(crc32, encoded), np.uint32, len(encoded))
        sizes = np.fromiter(map(len, encoded), np.int64, len(encoded))
        begins = np.cumsum(sizes) - sizes
        wanted = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
        slots, hashes, lengths = view(self._slots), view(self._hashes), view(self._lengths)
        starts, blob = view(self._starts), np.frombuffer(self._blob or b"\0", np.uint8)
        found = np.full(len(texts), -1, np.int32)
        pending, at = np.arange(len(texts)), self._homes(checks)
        while len(pending):
            numbers = slots[at]
            there = numbers >= 0
            pending, at, numbers = pending[there], at[there], numbers[there]
            alike = (hashes[numbers] == checks[pending]) & (lengths[numbers] == sizes[pending])
            which = np.flatnonzero(alike)
            mine = pending[which]
            same = _are_equal(
                (wanted, begins[mine]), (blob, starts[numbers[which]].astype(np.int64)), sizes[mine]
            )
            found[mine[same]] = numbers[which[same]]
            alike[which[~same]] = False
            pending, at = pending[~alike], at[~alike] + 1 & self._mask
        return found, encoded, checks

    def _take_many(self, encoded: list[bytes], checks: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Take in texts that are not here, none of them twice; gives their numbers."""
        count, at = len(encoded), len(self._blob)
        kept = max(0, len(self._free) - count)  # none at all may be wanted: no slice from the end
        self._blob += bytes((_END,)).join([*encoded, b""])
        sizes = np.fromiter(map(len, encoded), np.int64, count)
        again = view(self._free)[kept:].astype(np.int32)
        del self._free[kept:]
        begin = len(self._starts)
        for column in (self._starts, self._lengths, self._hashes):
            grow(column, count - len(again))
        numbers = np.append(again, np.arange(begin, len(self._starts), dtype=np.int32))
        view(self._starts)[numbers] = at + np.cumsum(sizes + 1) - (sizes + 1)
        view(self._lengths)[numbers] = sizes
        view(self._hashes)[numbers] = checks
        if self._used + count >= len(self._slots) * _FULL:
            self._rebuild(self._used + count)
        fill_slots(self._slots, self._homes(checks), numbers)
        self._used += count
        return numbers

    def _homes(self, checks: NDArray[Any]) -> NDArray[np.int64]:
        mixed = checks.astype(np.uint64) * np.uint64(_GOLDEN)
        return (mixed >> np.uint64(self._shift)).astype(np.int64)

    def _probe(self, encoded: bytes, check: int) -> tuple[int, int]:
        """(number or -1, slot where it is or would go)."""
        slots, hashes, mask = self._slots, self._hashes, self._mask
        at = (check * _GOLDEN & _M) >> self._shift
        while (found := slots[at]) >= 0:
            if hashes[found] == check:
                start = self._starts[found]
                end = start + self._lengths[found]
                if end - start == len(encoded) and self._blob[start:end] == encoded:
                    return found, at
            at = at + 1 & mask
        return -1, at

    def _take(self, encoded: bytes, check: int) -> int:
        start = len(self._blob)
        self._blob += encoded
        self._blob.append(_END)
        if self._free:
            number = self._free.pop()
            self._starts[number] = start
            self._lengths[number] = len(encoded)
            self._hashes[number] = check
            return number
        self._starts.append(start)
        self._lengths.append(len(encoded))
        self._hashes.append(check)
        return len(self._starts) - 1

    def _remember(self, text: str, number: int) -> None:
        if len(self._ids) >= _CACHED:
            self._ids.clear()
        self._ids[text] = number

    # -- number to text --

    def text(self, number: int) -> str:
        """The text of a number."""
        found = self._texts.get(number)
        if found is None:
            start = self._starts[number]
            piece = self._blob[start : start + self._lengths[number]]
            found = piece.decode("utf-8", "surrogatepass")
            if len(self._texts) >= _TEXTS:
                self._texts.clear()
            self._texts[number] = found
        return found

    def texts(self, numbers: Iterable[int]) -> list[str]:
        """The texts of many numbers."""
        text, known = self.text, self._texts
        return [known.get(each) or text(each) for each in numbers]

    def copies(self) -> tuple[bytes, NDArray[np.uint64], NDArray[np.uint32]]:
        """What `containing` needs, for a search that goes on while names come and go."""
        starts = view(self._starts).astype(np.uint64)
        return bytes(self._blob), starts, view(self._lengths).astype(np.uint32)

    def order(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        """Positions that put numbers into the order of their texts."""
        if len(numbers) < _COMPARED:
            texts = self.texts(numbers.tolist())
            return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
        lengths = view(self._lengths)[numbers].astype(np.int64)
        starts = view(self._starts)[numbers].astype(np.int64)
        words = int(min(_WORDS, -(-max(int(lengths.max()), 1) // 8)))
        blob = np.frombuffer(self._blob, np.uint8)
        keys = [lengths]
        for word in range(words):
            within = np.arange(word * 8, word * 8 + 8)
            places = np.minimum(starts[:, None] + within, len(blob) - 1)
            piece = np.where(within < lengths[:, None], blob[places], 0).astype(np.uint8)
            keys.insert(1, piece.view(">u8").ravel().astype(np.uint64))
        del blob
        order = np.lexsort(keys)
        if int(lengths.max()) > words * 8:
            # Longer than what was compared: nearly in order, which is what `sorted` is best at.
            texts = self.texts(numbers[order].tolist())
            order = order[np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)]
        return order

    # -- letting go --

    def release(self, used: NDArray[np.bool_]) -> int:
        """Give up all texts but those marked (by number); gives how many went."""
        held = np.ones(len(self._starts), bool)
        held[view(self._free)] = False
        gone = np.flatnonzero(held & ~used)
        if not len(gone):
            return 0
        self._ids.clear()
        self._texts.clear()
        self._dead += int(view(self._lengths)[gone].sum()) + len(gone)
        view(self._lengths)[gone] = 0
        self._used -= len(gone)
        self._free.frombytes(gone.astype(np.int32).tobytes())
        kept = np.flatnonzero(held & used).astype(np.int32)
        self._refill(kept, self._used)
        if self._dead * 2 > len(self._blob):
            self._compact(kept)
        return len(gone)

    def _compact(self, kept: NDArray[np.int32]) -> None:
        starts = view(self._starts)
        lengths = view(self._lengths)[kept].astype(np.int64) + 1
        begins = np.cumsum(lengths) - lengths
        total = int(lengths.sum())
        places = np.arange(total) + np.repeat(starts[kept].astype(np.int64) - begins, lengths)
        packed = np.frombuffer(self._blob, np.uint8)[places].tobytes()
        starts[:] = 0
        starts[kept] = begins
        # The numbers that are free stand where no text begins: behind all.
        starts[view(self._free)] = total
        self._blob = bytearray(packed)
        self._dead = 0

    def _rebuild(self, used: int) -> None:
        old = view(self._slots)
        self._refill(old[old >= 0], used)

    def _refill(self, kept: NDArray[Any], used: int) -> None:
        size = _SMALLEST
        while size * _FULL * 0.75 < used:
            size *= 2
        self._set_slots(array("i", [-1]) * size)
        fill_slots(self._slots, self._homes(view(self._hashes)[kept]), kept)

    # -- checkpoint --

    def sections(self) -> list[Section]:
        """The columns by the names of their sections."""
        return [
            ("names.blob", self._blob),
            ("names.starts", self._starts),
            ("names.lengths", self._lengths),
            ("names.hashes", self._hashes),
            ("names.free", self._free),
            ("names.slots", self._slots),
        ]

    @classmethod
    def thaw(cls, sections: Mapping[str, memoryview | bytes], *, swap: bool) -> NameTable:
        """What was frozen."""
        made = cls()
        try:
            made._blob = bytearray(sections["names.blob"])
        except KeyError:
            raise DamagedError("the schema's section 'names.blob' is missing") from None
        restore(sections, "names.starts", made._starts, swap=swap)
        restore(sections, "names.lengths", made._lengths, swap=swap)
        restore(sections, "names.hashes", made._hashes, swap=swap)
        restore(sections, "names.free", made._free, swap=swap)
        slots = restore(sections, "names.slots", array("i"), swap=swap)
        made._set_slots(slots)
        made._used = len(made._starts) - len(made._free)
        fits = len(made._starts) == len(made._lengths) == len(made._hashes)
        if not fits or len(slots) < _SMALLEST or len(slots) & len(slots) - 1:
            raise DamagedError("the schema's sections names.* do not fit together")
        made._dead = len(made._blob) - int(view(made._lengths).sum()) - made._used
        return made


def _are_equal(
    ours: tuple[NDArray[np.uint8], NDArray[np.int64]],
    theirs: tuple[NDArray[np.uint8], NDArray[np.int64]],
    sizes: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which pieces of two texts are the same; of each where they begin, and their sizes."""
    same = np.ones(len(sizes), bool)
    some = np.flatnonzero(sizes)
    if len(some):
        sizes = sizes[some]
        places = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        one = ours[0][np.repeat(ours[1][some], sizes) + places]
        other = theirs[0][np.repeat(theirs[1][some], sizes) + places]
        same[some] = np.logical_and.reduceat(one == other, np.cumsum(sizes) - sizes)
    return same


def containing(
    blob: bytes | bytearray, begins: NDArray[Any], lengths: NDArray[Any], text: str
) -> NDArray[np.int64]:
    """The numbers of all texts that have this one in them.

    Args:
        blob: all texts.
        begins: where each begins in it, by number.
        lengths: of each, in bytes.
        text: what is looked for.
    """
    if not text:
        return np.arange(len(begins))
    starts = begins.astype(np.int64)
    needle = re.compile(re.escape(text.encode("utf-8", "surrogatepass")))
    hits = np.fromiter((found.start() for found in needle.finditer(blob)), np.int64)
    order = np.argsort(starts, kind="stable")
    places = np.searchsorted(starts[order], hits, "right") - 1
    numbers = np.unique(order[places])
    # What stands in a piece that nobody has any more belongs to no text.
    ends = starts + lengths
    inside = (starts[order[places]] <= hits) & (hits < ends[order[places]])
    return numbers if inside.all() else np.unique(order[places[inside]])
