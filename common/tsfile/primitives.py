"""The primitives every structure of a TsFile is made of, read from a bytes object and written.

Positions are relative to the buffer. A length is believed only as far as the buffer goes: nothing
is allocated for it before. What runs off the end raises ``Malformed`` here, or ``IndexError`` or
``struct.error`` in the hot loops; ``located`` turns each into ``Corrupt``, which knows the place
in the file.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = [
    "INT32",
    "INT64",
    "TIMES",
    "Corrupt",
    "Malformed",
    "located",
    "read_bin",
    "read_int64",
    "read_str",
    "read_uvarint",
    "read_vbin",
    "read_vstr",
    "uvarint_bytes",
    "vstr_bytes",
]

INT32: Final = struct.Struct(">i").unpack_from
INT64: Final = struct.Struct(">q").unpack_from
TIMES: Final = struct.Struct(">qq").unpack_from

_MAX_VARINT_BYTES: Final = 5  # 32 bits
_NULL: Final = b"\x01"


class Corrupt(ValueError):
    """The file's content contradicts the format. The message says what and where."""


class Malformed(Exception):
    """A structure cannot be read at a position of the buffer it stands in."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what = what
        self.at = at


class located:
    """Raise ``Corrupt`` for what goes wrong in a buffer that stands at ``base`` in the file."""

    __slots__ = ("_base", "_section")

    def __init__(self, base: int, section: str) -> None:
        self._base = base
        self._section = section

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, bad: BaseException | None, tb: object) -> None:
        if isinstance(bad, Malformed):
            raise Corrupt(f"{bad.what} at offset {self._base + bad.at}") from bad
        if isinstance(bad, IndexError | struct.error):
            reason = f"{self._section} at offset {self._base} ends in the middle of an entry"
            raise Corrupt(reason) from bad


def read_uvarint(buf: bytes, pos: int) -> tuple[int, int]:
    """Read a LEB128 of up to five bytes; return (number, position behind it)."""
    number = buf[pos]
    if number < 0x80:  # nearly all are
        return number, pos + 1
    number = 0
    for index in range(_MAX_VARINT_BYTES):
        byte = buf[pos + index]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, pos + index + 1
    raise Malformed("a length prefix of more than five bytes", pos)


def read_vbin(buf: bytes, pos: int) -> tuple[bytes | None, int]:
    """Read bytes behind their zig-zag length; length -1 is None."""
    zigzag, at = buf[pos], pos + 1
    if zigzag > 0x7F:
        zigzag, at = read_uvarint(buf, pos)
    if zigzag == 1:
        return None, at
    end = at + (zigzag >> 1)
    if zigzag & 1 or end > len(buf):
        raise Malformed("a value of negative length or of more bytes than are left", pos)
    return buf[at:end], end


def read_vstr(buf: bytes, pos: int) -> tuple[str | None, int]:
    """Read a string behind its zig-zag length; length -1 is None."""
    raw, end = read_vbin(buf, pos)
    return None if raw is None else _text(raw, pos), end


def read_str(buf: bytes, pos: int) -> tuple[str | None, int]:
    """Read a string behind its int32 length; length -1 is None."""
    if INT32(buf, pos)[0] == -1:
        return None, pos + 4
    raw, end = read_bin(buf, pos)
    return _text(raw, pos), end


def _text(raw: bytes, pos: int) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        raise Malformed("a string that is not UTF-8", pos) from None


def read_bin(buf: bytes, pos: int) -> tuple[bytes, int]:
    """Read bytes behind their int32 length."""
    (length,) = INT32(buf, pos)
    end = pos + 4 + length
    if length < 0 or end > len(buf):
        raise Malformed(f"a value of {length} bytes, more than is left", pos)
    return buf[pos + 4 : end], end


def read_int64(buf: bytes, pos: int) -> tuple[int, int]:
    """Read a big-endian int64."""
    return int(INT64(buf, pos)[0]), pos + 8


def uvarint_bytes(number: int) -> bytes:
    """Write a LEB128."""
    if number < 0x80:  # nearly all are
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def vstr_bytes(text: str | None) -> bytes:
    """Write a string behind its zig-zag length; None is length -1."""
    if text is None:
        return _NULL
    raw = text.encode()
    return uvarint_bytes(2 * len(raw)) + raw
