"""Compressors as TsFile writers use them, code by code; of LZO a slow one of our own."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable

import pyarrow as pa

from common.tsfile import Compression

__all__ = ["COMPRESSORS", "lzo"]

_LITERALS_BEFORE = 4  # state: a match behind a run of four literals or more
_WINDOW = 48_000


def _arrow(name: str) -> Callable[[bytes], bytes]:
    return lambda raw: bytes(pa.Codec(name).compress(raw, asbytes=True))


def lzo(raw: bytes, *, skip: int = 0) -> bytes:
    """LZO1X with every kind of instruction, wherever one fits; no match in the first bytes."""
    return _Lzo(raw).stream(skip)


class _Lzo:
    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.out = bytearray()
        self.short_at: int | None = None  # where the last match counts the literals behind it

    def stream(self, skip: int) -> bytes:
        pos, start = skip, 0
        while pos < len(self.raw):
            length, distance = self._longest(pos)
            state = self._state(pos - start)
            if length >= 3 or (length == 2 and state in (1, 2, 3) and distance <= 1024):
                self._literals(self.raw[start:pos])
                self._match(length, distance, state)
                pos = start = pos + length
            else:
                pos += 1
        self._literals(self.raw[start:])
        return bytes(self.out) + b"\x11\x00\x00"

    def _longest(self, pos: int) -> tuple[int, int]:
        """The longest match with what stands before: its length and distance."""
        length = distance = 0
        while length < 700 and pos + length < len(self.raw):
            more = self.raw[pos : pos + length + 1]
            found = self.raw.rfind(more, max(0, pos - _WINDOW), pos + length)
            if found < 0:
                break
            length, distance = length + 1, pos - found
        return length, distance

    def _state(self, literals: int) -> int:
        return min(literals, _LITERALS_BEFORE)

    def _literals(self, some: bytes) -> None:
        if not some:
            return
        if self.short_at is None and len(some) <= 238:
            self.out.append(17 + len(some))
        elif self.short_at is not None and len(some) < 4:
            self.out[self.short_at] |= len(some)
        else:
            self.out += _with_long(0, len(some) - 3, 15)
        self.out += some

    def _match(self, length: int, distance: int, state: int) -> None:
        self.short_at = len(self.out)
        if length == 2:
            self.out += bytes([(distance - 1 & 3) << 2, distance - 1 >> 2])
        elif length == 3 and state == _LITERALS_BEFORE and 2049 <= distance <= 3072:
            self.out += bytes([(distance - 2049 & 3) << 2, distance - 2049 >> 2])
        elif length <= 8 and distance <= 2048:
            self.out += bytes([length - 1 << 5 | (distance - 1 & 7) << 2, distance - 1 >> 3])
        else:
            near = distance <= 16384
            away = distance - 1 if near else distance - 16384
            most, kind = (31, 32) if near else (7, 16 | (away >> 14) << 3)
            self.out += _with_long(kind, length - 2, most)
            self.short_at = len(self.out)
            self.out += ((away & 16383) << 2).to_bytes(2, "little")


def _with_long(kind: int, length: int, most: int) -> bytes:
    """An instruction with its length, or with 0 and the length behind it."""
    if length <= most:
        return bytes([kind | length])
    zeros, left = divmod(length - most - 1, 255)
    return bytes([kind]) + b"\0" * zeros + bytes([left + 1])


COMPRESSORS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.UNCOMPRESSED: lambda raw: raw,
    Compression.SNAPPY: _arrow("snappy"),
    Compression.GZIP: gzip.compress,
    Compression.LZO: lzo,
    Compression.LZ4: _arrow("lz4_raw"),
    Compression.ZSTD: _arrow("zstd"),
    Compression.LZMA2: lzma.compress,
}
