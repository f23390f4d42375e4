"""Writes a map of strings as Java does: from the format, and not from the reader."""

from __future__ import annotations

import struct
from collections.abc import Mapping

_HEAD = (
    "aced0005737200116a6176612e7574696c2e486173684d61700507dac1c31660d103000246000a"
    "6c6f6164466163746f724900097468726573686f6c6478703f400000"
)


def java_map(pairs: Mapping[str, str]) -> bytes:
    """A `HashMap` of these; equal values are one object, as the tool's are."""
    body = bytes.fromhex(_HEAD) + struct.pack(">I", 12)
    body += b"\x77\x08" + struct.pack(">II", 16, len(pairs))
    handles: dict[str, int] = {}
    written = 0
    for key, value in pairs.items():
        body += _text(key)
        written += 1
        if value in handles:
            body += b"\x71" + struct.pack(">I", 0x7E0002 + handles[value])
        else:
            handles[value] = written
            body += _text(value)
            written += 1
    return body + b"\x78"


def _text(text: str) -> bytes:
    units = text.encode("utf-16-be", "surrogatepass")
    data = b"".join(
        chr(unit).encode("utf-8", "surrogatepass") if unit else b"\xc0\x80"
        for (unit,) in struct.iter_unpack(">H", units)
    )
    return b"\x74" + struct.pack(">H", len(data)) + data
