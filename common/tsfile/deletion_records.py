"""Where the records of a deletion file end: what of it can travel.

A database appends to `X.tsfile.mods` (text, a record a line) and `X.tsfile.mods2` (binary, records
back to back; the receiver's `receiver.points.deletion_files` has the format). What is read while it
writes, or after a crash, may end within a record: that part is left for later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.tsfile.primitives import Malformed, read_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DELETION_FORMS", "whole_records"]

DELETION_FORMS: Final = ("mods", "mods2")
"""The endings of deletion files behind `X.tsfile.`, each a form of its own."""

_TIMES: Final = 17
_MOST_NESTED: Final = 32


def whole_records(content: bytes, form: str) -> int:
    """The bytes of a deletion file up to the end of its last whole record.

    Args:
        content: of the file, from its begin.
        form: one of `DELETION_FORMS`.

    Raises:
        Malformed: something in it is no record.
    """
    if form == "mods":
        return content.rfind(b"\n") + 1
    at = 0
    while at < len(content):
        try:
            end = _record(content, at)
        except IndexError:
            break
        if end > len(content):
            break
        at = end
    return at


# Each takes a position and gives the one behind what it skips; beyond the end is torn.


def _record(buf: bytes, pos: int) -> int:
    kind, at = buf[pos], pos + _TIMES
    if kind == 1:
        return _string(buf, at)
    if kind == 0:
        return _several(buf, _condition(buf, _string(buf, at), 0), _string)
    raise Malformed(f"a deletion of the unknown kind {kind}", pos)


def _condition(buf: bytes, pos: int, depth: int) -> int:
    if depth > _MOST_NESTED:
        raise Malformed("conditions nested too deep", pos)
    kind, at = buf[pos], pos + 1
    match kind:
        case 0:
            return at
        case 1:
            return _device(buf, at)
        case 2:
            return read_uvarint(buf, _string(buf, at))[1]
        case 3:
            return _several(buf, at, lambda buf, pos: _condition(buf, pos, depth + 1))
        case 4:
            return _several(buf, at, _device)
        case 5:
            return read_uvarint(buf, at)[1]
    raise Malformed(f"a condition of the unknown kind {kind}", pos)


def _several(buf: bytes, pos: int, skip: Callable[[bytes, int], int]) -> int:
    zigzag, at = read_uvarint(buf, pos)
    return _items(buf, at, zigzag >> 1, skip)


def _device(buf: bytes, pos: int) -> int:
    number, at = read_uvarint(buf, pos)
    return _items(buf, at, number, _string)


def _items(buf: bytes, pos: int, number: int, skip: Callable[[bytes, int], int]) -> int:
    for _ in range(number):  # each takes a byte or raises
        pos = skip(buf, pos)
    return pos


def _string(buf: bytes, pos: int) -> int:
    zigzag, at = read_uvarint(buf, pos)
    return at if zigzag & 1 else at + (zigzag >> 1)
