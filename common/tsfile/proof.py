"""What a TsFile holds, series by series: points, times and a digest, so that two readings compare.

A sender computes the table from the bytes it sends, a receiver compares what it has loaded with it
and names the series that differ. Nothing is decoded: a digest is over a series' chunks as they
stand in the file, headers included.

    chunk digest   xxh3-64 over the bytes from the chunk's header to the end of its pages
    series digest  xxh3-64 over the chunk digests (uint64 each), in the order of the index
    root           xxh3-128 over the table's bytes

The bytes of a table, version 1, big-endian; devices and series in the order of the index, time
columns (name "") among them:

    "TSFP"  byte version  uint32 devices  uint32 series
    uint32 x devices   bytes of each device's name
    uint32 x devices   series of each device
    uint32 x series    bytes of each measurement's name
    uint64 x series    points
    int64  x series    first time, 0 of a series without points
    int64  x series    last time, 0 of a series without points
    uint64 x series    digest
    the names of the devices, then of the measurements, UTF-8, back to back

Packed it is one zlib stream of these bytes. `common.tsfile.proving` makes tables of files.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import xxhash

from common.tsfile.primitives import Corrupt

__all__ = [
    "MAX_TABLE_BYTES",
    "Difference",
    "SeriesProof",
    "SeriesTable",
    "big_endian",
    "compress",
    "inflate",
]

MAX_TABLE_BYTES: Final = 128 << 20
"""Of an unpacked table: about three million series."""

_HEAD: Final = struct.Struct(">4sBII")
_MAGIC: Final = b"TSFP"
_VERSION: Final = 1


class SeriesProof(NamedTuple):
    """One series of a table.

    Attributes:
        device: its name, as `Device.name` has it.
        measurement: its bare name; "" for a time column.
        points: how many; of a time column the rows.
        first: time of the first point, None without points; in the writer's unit.
        last: time of the last point, None without points.
        digest: of its chunks, see the module.
    """

    device: str
    measurement: str
    points: int
    first: int | None
    last: int | None
    digest: int


class Difference(NamedTuple):
    """Where two tables disagree.

    Attributes:
        device: its name.
        measurement: of the series; None where it is about the whole device.
        detail: in words, what was sent and what was found.
    """

    device: str
    measurement: str | None
    detail: str


class SeriesTable(msgspec.Struct, frozen=True):
    """The series of one file, as columns; every column but the first two has one entry a series.

    Attributes:
        devices: their names, in the order of the index.
        sizes: series of each device.
        measurements: bare names, "" for a time column.
        counts: points.
        firsts: first times, 0 without points.
        lasts: last times, 0 without points.
        digests: of the chunks.
    """

    devices: tuple[str, ...]
    sizes: array[int]
    measurements: tuple[str, ...]
    counts: array[int]
    firsts: array[int]
    lasts: array[int]
    digests: array[int]

    def __len__(self) -> int:
        return len(self.measurements)

    def __iter__(self) -> Iterator[SeriesProof]:
        """Yield the series, in the order of the index."""
        at = 0
        for device, size in zip(self.devices, self.sizes, strict=True):
            for number in range(at, at + size):
                count = self.counts[number]
                yield SeriesProof(
                    device,
                    self.measurements[number],
                    count,
                    self.firsts[number] if count else None,
                    self.lasts[number] if count else None,
                    self.digests[number],
                )
            at += size

    def without_digests(self) -> SeriesTable:
        """The same with zeros for digests."""
        return msgspec.structs.replace(self, digests=array("Q", bytes(8 * len(self))))

    def same_statistics(self, other: SeriesTable) -> bool:
        """Whether all but the digests is equal."""
        return msgspec.structs.replace(self, digests=other.digests) == other

    def differences(self, found: SeriesTable) -> Iterator[Difference]:
        """Yield how `found` differs from this table, which was sent: nothing for equal ones."""
        sent_rows, found_rows = _by_series(self), _by_series(found)
        for key, sent in sent_rows.items():
            there = found_rows.get(key)
            if there is None:
                yield Difference(key[0], key[1], "was sent, and is not in the file")
            elif there[2:5] != sent[2:5]:
                yield Difference(key[0], key[1], f"sent {_said(sent)}, found {_said(there)}")
            elif there.digest != sent.digest:
                yield Difference(
                    key[0],
                    key[1],
                    f"sent chunks with digest {sent.digest:016x}, found {there.digest:016x}",
                )
        for key in found_rows.keys() - sent_rows.keys():
            yield Difference(key[0], key[1], "is in the file, and was not sent")
        if self.devices != found.devices and sent_rows.keys() == found_rows.keys():
            yield Difference("", None, "devices stand in another order")

    # -- bytes -------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The canonical bytes, see the module."""
        devices = [each.encode() for each in self.devices]
        names = [each.encode() for each in self.measurements]
        return b"".join(
            (
                _HEAD.pack(_MAGIC, _VERSION, len(devices), len(names)),
                big_endian(array("I", map(len, devices))),
                big_endian(self.sizes),
                big_endian(array("I", map(len, names))),
                *map(big_endian, (self.counts, self.firsts, self.lasts, self.digests)),
                *devices,
                *names,
            )
        )

    @property
    def root(self) -> str:
        """Digest of the whole table, 32 hex digits."""
        return xxhash.xxh3_128_hexdigest(self.encode())

    @staticmethod
    def blank(data: bytes) -> bytes:
        """The canonical bytes of a table, with zeros for digests; of anything else, anything."""
        if len(data) < _HEAD.size:
            return data
        *_, devices, series = _HEAD.unpack_from(data)
        begin = _HEAD.size + 8 * devices + 4 * series + 24 * series
        end = begin + 8 * series
        return b"".join((data[:begin], bytes(len(data[begin:end])), data[end:]))

    def pack(self) -> bytes:
        """The bytes, compressed."""
        return compress(self.encode())

    @classmethod
    def decode(cls, data: bytes) -> SeriesTable:
        """The table that `encode` gave.

        Raises:
            Corrupt: it is none.
        """
        return _Decoding(data).table()

    @classmethod
    def unpack(cls, packed: bytes, *, limit: int = MAX_TABLE_BYTES) -> SeriesTable:
        """The table that `pack` gave.

        Args:
            packed: compressed bytes, of whatever origin.
            limit: of the bytes that they may become.

        Raises:
            Corrupt: it is none, or larger.
        """
        return cls.decode(inflate(packed, limit=limit))


def compress(data: bytes) -> bytes:
    """The bytes of a table, packed."""
    return zlib.compress(data, 6)


def inflate(packed: bytes, *, limit: int = MAX_TABLE_BYTES) -> bytes:
    """The canonical bytes in a packed table, within a limit.

    Raises:
        Corrupt: this is no compressed table, or a larger one.
    """
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(packed, limit)
    except zlib.error as error:
        raise Corrupt(f"a packed table of series: {error}") from error
    if not stream.eof or stream.unused_data:
        raise Corrupt(f"a packed table of series that is cut off, or of more than {limit} bytes")
    return data


def _said(row: SeriesProof) -> str:
    if not row.points:
        return "no points"
    return f"{row.points} points from {row.first} to {row.last}"


def _by_series(table: SeriesTable) -> dict[tuple[str, str, int], SeriesProof]:
    """Rows by device, measurement, and which of several of that name it is."""
    found: dict[tuple[str, str, int], SeriesProof] = {}
    for row in table:
        number = 0
        while (row.device, row.measurement, number) in found:
            number += 1
        found[row.device, row.measurement, number] = row
    return found


def big_endian(column: array[int]) -> bytes:
    """A column as it stands in a table."""
    if sys.byteorder == "little":
        column = column[:]
        column.byteswap()
    return column.tobytes()


class _Decoding:
    """Reads the bytes of a table, each length checked before it is used."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = _HEAD.size

    def table(self) -> SeriesTable:
        if len(self._data) < _HEAD.size:
            raise Corrupt("a table of series that ends within its head")
        magic, version, devices, series = _HEAD.unpack_from(self._data)
        if magic != _MAGIC or version != _VERSION:
            raise Corrupt(f"this is no table of series of version {_VERSION}")
        device_bytes, sizes = self._column("I", devices), self._column("I", devices)
        name_bytes = self._column("I", series)
        columns = [self._column(code, series) for code in "QqqQ"]
        if sum(sizes) != series:
            raise Corrupt(f"a table of {series} series, of which devices have {sum(sizes)}")
        names = self._names(device_bytes), self._names(name_bytes)
        if self._at != len(self._data):
            raise Corrupt(f"a table of series with {len(self._data) - self._at} bytes too many")
        return SeriesTable(names[0], sizes, names[1], *columns)

    def _column(self, code: str, number: int) -> array[int]:
        column: array[int] = array(code)
        column.frombytes(self._take(number * column.itemsize))
        if sys.byteorder == "little":
            column.byteswap()
        return column

    def _names(self, lengths: array[int]) -> tuple[str, ...]:
        shared: dict[bytes, str] = {}
        names = []
        for length in lengths:
            raw = self._take(length)
            name = shared.get(raw)
            if name is None:
                try:
                    name = shared[raw] = raw.decode()
                except UnicodeDecodeError as error:
                    raise Corrupt("a table of series with a name that is not UTF-8") from error
            names.append(name)
        return tuple(names)

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise Corrupt("a table of series that ends too early")
        taken, self._at = self._data[self._at : end], end
        return taken
