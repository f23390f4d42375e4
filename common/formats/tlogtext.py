"""Slots of a `tlog.txt`, where Apache IoTDB keeps the tags and attributes of series.

A slot has 700 bytes (`tag_attribute_total_size`) and is rewritten in place when they change:

    tags        int32 count, then for each int32 length and UTF-8 of the key, the same of the value
    attributes  the same
    the rest is zero

Numbers are big-endian, as Java writes them. A slot says itself where its content ends, so one that
is read needs no slot size, and travels without the zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from common.errors import Integrity, TooLargeError

__all__ = ["SLOT", "Slot", "TlogSlotError", "read_slot", "write_slot"]

SLOT: Final = 700
"""Bytes of a slot, unless the database was told otherwise."""

_INT: Final = struct.Struct(">i")
_PAIR: Final = 2 * _INT.size


class TlogSlotError(Integrity):
    """There is no whole slot; the message says what was found."""

    slug = "tlog-slot"


@dataclass(frozen=True, slots=True)
class Slot:
    """What a slot holds.

    Attributes:
        tags: of the series.
        attributes: of the series.
        size: bytes of its content, zeros not counted.
    """

    tags: dict[str, str]
    attributes: dict[str, str]
    size: int


def read_slot(data: bytes | memoryview, at: int = 0) -> Slot:
    """The slot that begins at an offset of `data`.

    Raises:
        TlogSlotError: what is there is none, or is cut off.
    """
    tags, end = _read_map(data, at, "tags")
    attributes, end = _read_map(data, end, "attributes")
    return Slot(tags, attributes, end - at)


def _read_map(data: bytes | memoryview, at: int, what: str) -> tuple[dict[str, str], int]:
    count, at = _read_int(data, at, f"number of {what}")
    if not 0 <= count <= (len(data) - at) // _PAIR:
        raise TlogSlotError(f"{count} {what} do not fit into the {len(data) - at} bytes left")
    found: dict[str, str] = {}
    for _ in range(count):
        key, at = _read_text(data, at, what)
        found[key], at = _read_text(data, at, what)
    return found, at


def _read_text(data: bytes | memoryview, at: int, what: str) -> tuple[str, int]:
    length, at = _read_int(data, at, f"length of {what}")
    if not 0 <= length <= len(data) - at:
        raise TlogSlotError(
            f"{what}: a text of {length} bytes does not fit into the {len(data) - at} left"
        )
    try:
        return bytes(data[at : at + length]).decode(), at + length
    except UnicodeDecodeError as error:
        raise TlogSlotError(f"{what}: a text is no UTF-8") from error


def _read_int(data: bytes | memoryview, at: int, what: str) -> tuple[int, int]:
    if len(data) - at < _INT.size:
        raise TlogSlotError(f"the {what} is cut off")
    (value,) = _INT.unpack_from(data, at)
    return value, at + _INT.size


def write_slot(
    tags: Mapping[str, str], attributes: Mapping[str, str], size: int | None = SLOT
) -> bytes:
    """A slot of `size` bytes, or, for None, as long as its content.

    Raises:
        TooLargeError: the content is longer.
    """
    content = _write_map(tags) + _write_map(attributes)
    if size is None:
        return content
    if len(content) > size:
        raise TooLargeError(
            f"tags and attributes of {len(content)} bytes; a slot of the tlog has {size}"
        )
    return content.ljust(size, b"\0")


def _write_map(texts: Mapping[str, str]) -> bytes:
    pieces = [_INT.pack(len(texts))]
    for each in (part for pair in texts.items() for part in pair):
        raw = each.encode()
        pieces += (_INT.pack(len(raw)), raw)
    return b"".join(pieces)
