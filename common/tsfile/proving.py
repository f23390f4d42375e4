"""Makes the table of a file's series (`proof`): one pass over the file, whatever its chunks.

Chunks are digested in the order in which they stand in the file, with large reads; their digests
(8 bytes each) are put into the order of the index afterwards. Chunks that overlap are no TsFile,
so that no byte is digested twice, whatever an index says.
"""

from __future__ import annotations

import struct
from array import array
from typing import Final

import xxhash

from common.tsfile.byte_source import ByteSource, TsFileOrigin, opened
from common.tsfile.chunk_headers import LONGEST_FRAME, MARKERS
from common.tsfile.layout import HEAD_SIZE
from common.tsfile.primitives import Corrupt, Malformed, located, read_uvarint
from common.tsfile.proof import SeriesTable, big_endian
from common.tsfile.series import chunk_offsets, entries
from common.tsfile.tail import Tail

__all__ = ["series_proofs", "series_statistics"]

_WINDOW: Final = 4 << 20


def series_statistics(tail: Tail) -> SeriesTable:
    """The table of a file as far as its tail tells it: with zeros for digests.

    Args:
        tail: complete; read with `structure`.
    """
    columns = _Columns(tail)
    return columns.table(array("Q", bytes(8 * len(columns.names))))


def series_proofs(source: TsFileOrigin, tail: Tail) -> SeriesTable:
    """Read all chunks of a file and make its table. Memory: 50 bytes a chunk beside the tail.

    Args:
        source: the file.
        tail: of that file, complete; read with `structure`.

    Raises:
        OSError: the file cannot be read.
        Corrupt: a chunk is not where the index says, is of another series, or overlaps another.
    """
    columns = _Columns(tail)
    with opened(source) as file:
        raw = big_endian(_Chunks(file, columns, tail.meta_offset).digests())
    digests, at = array("Q"), 0
    for number in columns.chunks:
        digests.append(xxhash.xxh3_64_intdigest(raw[at : at + 8 * number]))
        at += 8 * number
    return columns.table(digests)


class _Columns:
    """What the index has of every series, and where all chunks are.

    Attributes:
        names: of the measurements.
        codes: data type of each series.
        chunks: how many each series has.
        offsets: of the chunks' headers, in the order of the index.
        owners: the number of the series of each chunk.
    """

    def __init__(self, tail: Tail) -> None:
        self._devices = tuple(device.name for device in tail.devices)
        self._sizes = array("I")
        self._counts, self._firsts, self._lasts = array("Q"), array("q"), array("q")
        self.names: list[str] = []
        self.codes = bytearray()
        self.chunks = array("I")
        self.offsets, self.owners = array("Q"), array("I")
        with located(tail.meta_offset, "the index"):
            for device in tail.devices:
                before = len(self.names)
                for begin, end in device.runs:
                    self._run(device.index, begin, end)
                self._sizes.append(len(self.names) - before)

    def _run(self, index: bytes, begin: int, end: int) -> None:
        for entry in entries(index, begin, end):
            _, name, code, count, first, last, *_ = entry
            offsets = tuple(chunk_offsets(index, entry))
            self.offsets.extend(offsets)
            self.owners.extend((len(self.names),) * len(offsets))
            self.chunks.append(len(offsets))
            self.names.append(name)
            self.codes.append(code)
            self._counts.append(count)
            self._firsts.append(first if count else 0)
            self._lasts.append(last if count else 0)

    def table(self, digests: array[int]) -> SeriesTable:
        return SeriesTable(
            self._devices,
            self._sizes,
            tuple(self.names),
            self._counts,
            self._firsts,
            self._lasts,
            digests,
        )


class _Chunks:
    """Digests the chunks of a file through a window that moves on over it."""

    def __init__(self, file: ByteSource, columns: _Columns, limit: int) -> None:
        self._file = file
        self._columns = columns
        self._limit = limit
        self._window = b""
        self._view = memoryview(b"")
        self._base = 0

    def digests(self) -> array[int]:
        """The digest of each chunk, in the order of the index."""
        offsets, owners = self._columns.offsets, self._columns.owners
        found = array("Q", bytes(8 * len(offsets)))
        behind = HEAD_SIZE
        for number in sorted(range(len(offsets)), key=offsets.__getitem__):
            offset = offsets[number]
            if offset < behind:
                raise Corrupt(f"a chunk at offset {offset}, within another that ends at {behind}")
            size = self._size(offset, owners[number])
            behind = offset + size
            if behind > self._limit:
                raise Corrupt(f"a chunk at offset {offset} reaches beyond the data section")
            found[number] = self._digest(offset, size)
        return found

    def _size(self, offset: int, series: int) -> int:
        """The bytes of the chunk whose header is at `offset`, from the header on."""
        raw = self._columns.names[series].encode()
        at = offset - self._base
        if at + LONGEST_FRAME + len(raw) > len(self._window):
            self._move(offset)
            at = 0
        window = self._window
        try:
            return self._parse(window, at, raw, self._columns.codes[series])
        except Malformed as bad:
            raise Corrupt(f"{bad.what} at offset {self._base + bad.at}") from bad
        except (IndexError, struct.error) as bad:
            raise Corrupt(f"the chunk header at offset {offset} is cut off") from bad

    @staticmethod
    def _parse(window: bytes, at: int, raw: bytes, code: int) -> int:
        zigzag, begin = read_uvarint(window, at + 1)
        size, end = read_uvarint(window, begin + len(raw))
        if (
            window[at] & 0x3F not in MARKERS
            or zigzag != 2 * len(raw)
            or window[begin : begin + len(raw)] != raw
            or window[end] != code
        ):
            raise Malformed(f"no chunk of series {raw.decode()!r}, type {code},", at)
        return end + 3 + size - at

    def _digest(self, offset: int, size: int) -> int:
        at = offset - self._base
        if at + size <= len(self._window):
            return xxhash.xxh3_64_intdigest(self._view[at : at + size])
        state, end = xxhash.xxh3_64(self._view[at:]), offset + size
        while (position := self._base + len(self._window)) < end:
            self._move(position)
            state.update(self._view[: end - position])
        return state.intdigest()

    def _move(self, offset: int) -> None:
        self._window = self._file.read(offset, min(_WINDOW, self._limit - offset))
        self._view = memoryview(self._window)
        self._base = offset
