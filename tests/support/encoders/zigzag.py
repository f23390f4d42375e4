"""ZIGZAG."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.encoders.bitstream import uvarint, varint


def integers(values: Sequence[int], size: int) -> bytes:
    if not values:
        return b""
    body = b"".join(map(varint, values))
    return uvarint(len(body)) + uvarint(len(values)) + body
