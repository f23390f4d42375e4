"""The Bloom filter of a footer: whether a file may have a series, without a look at its index.

A server asks it before it looks for a series, so one that lies hides points. Paths are hashed with
MurmurHash3 (128 bits, the lower half plus the upper), as the Java writers do: a byte of the last,
incomplete block counts as signed. Source: apache/tsfile, ``BloomFilter``, ``Murmur128Hash``.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from common.tsfile.primitives import uvarint_bytes
from receiver.points.jit import Number, kernel, readonly
from receiver.writing.structures import DeviceSegments

__all__ = ["BloomFilter", "fmix64"]

_LEAST_BITS: Final = 256
_ERROR_RATE: Final = 0.05
"""Of the series that a file does not have, how many it seems to have: what servers take."""
_SEEDS: Final = np.array([5, 7, 11, 19, 31, 37, 43, 59], np.uint64)
_HASHES: Final = int(-math.log(_ERROR_RATE) / math.log(2)) + 1

_C1: Final = np.uint64(0x87C37B91114253D5)
_C2: Final = np.uint64(0x4CF5AD432745937F)
_M1: Final = np.uint64(0xFF51AFD7ED558CCD)
_M2: Final = np.uint64(0xC4CEB9FE1A85EC53)


class BloomFilter:
    """A filter that takes up to so many series."""

    def __init__(self, series: int) -> None:
        ln2 = math.log(2)
        self._size = max(_LEAST_BITS, int(-series * math.log(_ERROR_RATE) / ln2 / ln2) + 1)
        self._bits = np.zeros((self._size + 7) // 8, np.uint8)

    def add(self, device: DeviceSegments, measurement: str) -> None:
        """Add a series; a null tag counts as the text ``null``, the time column as ``""``."""
        segments = ("null" if segment is None else segment for segment in device)
        path = f"{'.'.join(segments)}.{measurement}".encode()
        _add(readonly(np.frombuffer(path, np.uint8)), self._bits, self._size)

    def encode(self, version: int) -> bytes:
        """As the footer has it; of version 4 nothing but a zero without series."""
        raw = self._bits.tobytes().rstrip(b"\x00")
        if not raw and version > 3:  # readers of 0.13 and before go on reading
            return uvarint_bytes(0)
        return b"".join(
            (uvarint_bytes(len(raw)), raw, uvarint_bytes(self._size), uvarint_bytes(_HASHES))
        )


@kernel
def _rotated(word: Number, by: Number) -> Number:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@kernel
def fmix64(word: Number) -> Number:
    """Spread each bit of a word over all of it: the end of MurmurHash3."""
    word ^= word >> np.uint64(33)
    word *= _M1
    word ^= word >> np.uint64(33)
    word *= _M2
    return word ^ (word >> np.uint64(33))


@kernel
def _hash(path: Any, seed: Number) -> Number:
    """The lowest 32 bits of the two halves together, as an int64 from -2**31 on."""
    length = len(path)
    one = two = np.uint64(seed)
    for at in range(0, length - length % 16, 16):
        low = high = np.uint64(0)
        for index in range(8):
            low |= np.uint64(path[at + index]) << np.uint64(8 * index)
            high |= np.uint64(path[at + 8 + index]) << np.uint64(8 * index)
        one ^= _rotated(low * _C1, 31) * _C2
        one = (_rotated(one, 27) + two) * np.uint64(5) + np.uint64(0x52DCE729)
        two ^= _rotated(high * _C2, 33) * _C1
        two = (_rotated(two, 31) + one) * np.uint64(5) + np.uint64(0x38495AB5)
    low = high = np.uint64(0)
    begin = length - length % 16
    for index in range(length % 16):
        signed = np.uint64(np.int64(np.int8(path[begin + index])))
        if index < 8:
            low ^= signed << np.uint64(8 * index)
        else:
            high ^= signed << np.uint64(8 * (index - 8))
    two ^= _rotated(high * _C2, 33) * _C1
    one ^= _rotated(low * _C1, 31) * _C2
    one ^= np.uint64(length)
    two ^= np.uint64(length)
    one += two
    two += one
    one, two = fmix64(one), fmix64(two)
    one += two
    two += one
    return np.int64(np.int32((one + two) & np.uint64(0xFFFFFFFF)))


@kernel
def _add(path: Any, bits: Any, size: Number) -> None:
    for index in range(_HASHES):
        found = _hash(path, _SEEDS[index])
        if found == -(2**31):
            found = 0
        at = abs(found) % size
        bits[at >> 3] |= np.uint8(1 << (at & 7))
