"""PLAIN."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tests.support.encoders.bitstream import varint


def booleans(values: Iterable[int]) -> bytes:
    return bytes(values)


def int32s(values: Iterable[int]) -> bytes:
    return b"".join(map(varint, values))


def fixed(values: Iterable[float], form: str) -> bytes:
    """``form`` is q, f or d."""
    return b"".join(struct.pack(">" + form, value) for value in values)


def binaries(values: Iterable[bytes]) -> bytes:
    return b"".join(varint(len(value)) + value for value in values)
