"""Bits and varints, written as text of zeros and ones."""

from __future__ import annotations

import struct


def bits(number: int, width: int) -> str:
    """The lowest ``width`` bits of a number, the highest first; of a negative one too."""
    return format(number & ((1 << width) - 1), f"0{width}b") if width else ""


def to_bytes(text: str) -> bytes:
    """Bits to bytes, filled up with zeros."""
    text += "0" * (-len(text) % 8)
    return bytes(int(text[at : at + 8], 2) for at in range(0, len(text), 8))


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def varint(number: int) -> bytes:
    return uvarint(2 * number if number >= 0 else -2 * number - 1)


def wrap(number: int, size: int) -> int:
    """A number as a signed one of ``size`` bits holds it."""
    number &= (1 << size) - 1
    return number - (1 << size) if number >> (size - 1) else number


def float_bits(value: float, size: int) -> int:
    """The bits of a float of 32 or 64 bits, as a signed integer."""
    form = ("f", "i") if size == 32 else ("d", "q")
    return int(struct.unpack(">" + form[1], struct.pack(">" + form[0], value))[0])
