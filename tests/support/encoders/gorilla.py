"""GORILLA, both forms, over the bits of values as integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.support.encoders.bitstream import bits, to_bytes

NAN = {32: 0x7FC00000, 64: 0x7FF8000000000000}


def second(values: Sequence[int], size: int, end: int) -> bytes:
    """GORILLA (v2): the end is written as a value, then a byte is begun or filled."""
    text = "".join(_xors([*values, end], size))
    return to_bytes(text + ("00000000" if len(text) % 8 == 0 else ""))


def _xors(values: Iterable[int], size: int) -> Iterable[str]:
    field = 6 if size == 64 else 5
    before: int | None = None
    lead = trail = size + 1
    for value in values:
        if before is None:
            yield bits(value, size)
        else:
            xor = (before ^ value) & ((1 << size) - 1)
            if not xor:
                yield "0"
            elif _lead(xor, size) >= lead and _trail(xor) >= trail:
                yield "10" + bits(xor >> trail, size - lead - trail)
            else:
                lead, trail = _lead(xor, size), _trail(xor)
                length = size - lead - trail
                yield "11" + bits(lead, field) + bits(length - 1, field)
                yield bits(xor >> trail, length)
        before = value


def first(values: Sequence[int], size: int) -> bytes:
    """GORILLA_V1: zeros counted around the value before, the end is NaN."""
    field = 6 if size == 64 else 5
    mask = (1 << size) - 1
    before = values[0] & mask
    text = "".join(bits(before >> shift, 8) for shift in range(0, size, 8))
    for value in [*values[1:], NAN[size]]:
        xor = (before ^ value) & mask
        lead, trail = (_lead(before, size), _trail(before)) if before else (size, size)
        if not xor:
            text += "0"
        elif _lead(xor, size) >= lead and _trail(xor) >= trail:
            text += "10" + bits(xor >> trail, size - lead - trail)
        else:
            lead, trail = _lead(xor, size), _trail(xor)
            length = size - lead - trail
            text += "11" + bits(lead, field) + bits(length, field + 1) + bits(xor >> trail, length)
        before = value & mask
    return to_bytes(text)


def _lead(number: int, size: int) -> int:
    return size - number.bit_length()


def _trail(number: int) -> int:
    return (number & -number).bit_length() - 1
