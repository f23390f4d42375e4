"""Devices of files in little memory: names interned, ranges in compact arrays.

A site of 10,000 devices ships thousands of files that each hold all of them. Names are therefore
kept once; the ids of a file's devices are an array that files with the same devices share; a range
is two offsets from the file's first timestamp, of 4 bytes each where the file spans less than 2^32
units (a week in milliseconds does). That is 8 bytes for a device of a file instead of some 250.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from common.digests import xxh3_128

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from receiver.metadata.model.records import DeviceRange

__all__ = ["DeviceTable", "Devices", "PackedDevices", "ids_of", "packed_times"]

_NARROW = (1 << 32) - 1
_SHARED_FROM = 4
"""Devices from which on sharing an id array saves more than the book-keeping costs."""
_EMPTY = (1, 0)
"""Offsets of a device without points: its first is after its last."""


class Devices:
    """The devices of one file with their time ranges; immutable, in the file's order."""

    __slots__ = ("_base", "_ids", "_names", "_offsets")

    def __init__(self, names: list[str], ids: array[int], base: int, offsets: array[int]) -> None:
        self._names = names
        self._ids = ids
        self._base = base
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        names = self._names
        return (names[each] for each in self._ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Devices):
            return NotImplemented
        if self is other:
            return True
        return self.names() == other.names() and self.parts()[1:] == other.parts()[1:]

    def __hash__(self) -> int:
        return hash((self._base, len(self._ids)))

    def names(self) -> list[str]:
        """Names of the devices."""
        return list(self)

    def name(self, ident: int) -> str:
        """The name that an id of `parts` stands for; the same in all files of one table."""
        return self._names[ident]

    @property
    def ids(self) -> array[int]:
        """Numbers of the names, see `name`; files with the same devices may share it."""
        return self._ids

    def ranges(self) -> Iterator[tuple[str, int, int]]:
        """(name, first, last) of each device that has points; nothing after `without_ranges`."""
        names, base, offsets = self._names, self._base, self._offsets
        for ident, first, last in zip(self._ids, offsets[::2], offsets[1::2], strict=False):
            if first <= last:
                yield names[ident], base + first, base + last

    def parts(self) -> tuple[array[int], int, array[int]]:
        """(ids, base, offsets), for `DeviceTable.restored`; not to be changed."""
        return self._ids, self._base, self._offsets

    def without_ranges(self) -> Devices:
        """The names alone: what is kept of a deleted file."""
        return Devices(self._names, self._ids, 0, array("I"))


class PackedDevices(Devices):
    """The devices of a file of which the times are packed; they are opened when they are asked for.

    How far each range begins behind the file's first timestamp and ends before its last one:
    devices of a file are mostly written together, so these are small numbers.
    """

    __slots__ = ("_span", "_times")

    def __init__(
        self, names: list[str], ids: array[int], base: int, span: int, times: bytes
    ) -> None:
        self._names = names
        self._ids = ids
        self._base = base
        self._span = span
        self._times = times

    @property
    def _offsets(self) -> array[int]:  # type: ignore[override]
        span = self._span
        flat: array[int] = array(chr(self._times[0]))
        flat.frombytes(self._times[1:])
        half = len(flat) // 2
        offsets = array("Q" if span > _NARROW else "I", [0]) * (2 * half)
        offsets[::2] = array(offsets.typecode, flat[:half])
        offsets[1::2] = array(offsets.typecode, [span - before for before in flat[half:]])
        return offsets


def ids_of(several: Iterable[Devices]) -> set[int]:
    """Numbers of all devices of some files; most files share them with others."""
    arrays = {id(each.ids): each.ids for each in several}
    return set().union(*arrays.values())


def packed_times(devices: Devices, span: int) -> bytes:
    """What `PackedDevices` has: the type of an array, then the array.

    Raises:
        OverflowError: a range ends after the file.
    """
    _, _, offsets = devices.parts()
    numbers = [*offsets[::2], *[span - last for last in offsets[1::2]]]
    most = max(numbers, default=0)
    code = "B" if most < 1 << 8 else "H" if most < 1 << 16 else "I" if most <= _NARROW else "Q"
    return code.encode() + array(code, numbers).tobytes()


class DeviceTable:
    """All device names ever seen, and the id arrays that files share."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._ids: dict[str, int] = {}
        self._sets: WeakValueDictionary[bytes, array[int]] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._names)

    def names(self) -> list[str]:
        """A copy of all names, in the order of their ids."""
        return list(self._names)

    def restore(self, names: Iterable[str]) -> None:
        """Put names in as `names` gave them, before all else."""
        for name in names:
            self._id(name)

    @property
    def known_names(self) -> list[str]:
        """All names, in the order of their ids; not to be changed, it grows."""
        return self._names

    def shared(self, ids: array[int]) -> array[int]:
        """The one array with these ids that is kept, as long as somebody has it."""
        return self._shared(ids)

    def restored(self, ids: array[int], base: int, offsets: array[int]) -> Devices:
        """The devices that `Devices.parts` took apart; files with the same ids share them."""
        return Devices(self._names, self._shared(ids), base, offsets)

    def name(self, name: str) -> str:
        """The one copy of this name that is kept."""
        return self._names[self._id(name)]

    def kept(self, names: Iterable[str]) -> list[str]:
        """The one copy of each of these names that is kept."""
        ids = self._ids_of(names)
        return list(map(self._names.__getitem__, ids))

    def pack(self, devices: Sequence[DeviceRange], first: int | None, last: int | None) -> Devices:
        """The compact form of a file's devices; all their times are within `first` to `last`."""
        ids = array("I", self._ids_of(each.name for each in devices))
        base = first or 0
        try:
            flat = [time - base for each in devices for time in (each.first, each.last)]  # type: ignore[operator]
        except TypeError:
            flat = [offset for each in devices for offset in _offsets(each, base)]
        wide = first is not None and last is not None and last - first > _NARROW
        return Devices(self._names, self._shared(ids), base, array("Q" if wide else "I", flat))

    def _id(self, name: str) -> int:
        found = self._ids.get(name)
        if found is None:
            found = self._ids[name] = len(self._names)
            self._names.append(name)
        return found

    def _ids_of(self, names: Iterable[str]) -> list[int]:
        names = list(names)
        found = list(map(self._ids.get, names))
        if None in found:
            return list(map(self._id, names))
        return found  # type: ignore[return-value]

    def _shared(self, ids: array[int]) -> array[int]:
        if len(ids) < _SHARED_FROM:
            return ids
        return self._sets.setdefault(xxh3_128(ids), ids)


def _offsets(device: DeviceRange, base: int) -> tuple[int, int]:
    if device.first is None or device.last is None:
        return _EMPTY
    return device.first - base, device.last - base
