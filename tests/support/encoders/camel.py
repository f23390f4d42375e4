"""CAMEL of doubles."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.support.encoders.bitstream import bits, float_bits, to_bytes, varint, wrap

NAN = 0x7FF8000000000000
MASK = (1 << 64) - 1


def doubles(given: Sequence[float]) -> bytes:
    """A page: one block."""
    if not given:
        return b""
    text = bits(float_bits(given[0], 64), 64)
    whole = _whole(given[0])
    gorilla = _Gorilla()
    before = given[0]
    for value in given[1:]:
        text += "1" if math.copysign(1, value) < 0 and not math.isnan(value) else "0"
        digits = _digits(abs(value))
        if digits is None:
            text += "0" + gorilla.next(abs(value), before)
        else:
            integer, places = digits
            text += "1" + _varlong(wrap(integer - whole, 64)) + _places(abs(value), places)
            whole = integer
        before = value
    return varint(len(text)) + to_bytes(text)


def _digits(value: float) -> tuple[int, int] | None:
    """(whole part, decimal places) of what has at most ten digits."""
    if math.isnan(value):
        return 0, 1
    if value > 2**63 or value == 0 or abs(math.floor(math.log10(value))) > 10:
        return None
    integer = int(value)
    length = len(str(integer))
    factor, places = 1.0, 0
    while value * factor - _round(value * factor) != 0:
        factor *= 10.0
        places += 1
        if length + places > 10:
            break
    places = max(1, places)
    return (integer, places) if places + length <= 10 else None


def _places(value: float, places: int) -> str:
    power = 10**places
    threshold = power // 2**places
    decimals = 0 if math.isnan(value) else _round(value * power) % power
    if decimals < threshold:
        return bits(places - 1, 4) + "0" + _varlong(decimals)
    rest = decimals % threshold
    xor = float_bits(decimals / power + 1, 64) ^ float_bits(rest / power + 1, 64)
    return bits(places - 1, 4) + "1" + bits(xor >> (52 - places), places) + _varlong(rest)


def _round(value: float) -> int:
    down = math.floor(value)
    return down + 1 if value - down >= 0.5 else down


def _whole(value: float) -> int:
    if math.isnan(value):
        return 0
    return max(-(2**63), min(2**63 - 1, int(max(-1e19, min(1e19, value)))))


def _varlong(value: int) -> str:
    left = (value << 1 ^ value >> 63) & MASK
    text = ""
    while left >= 0x80:
        text += bits(left, 7) + "1"
        left >>= 7
    return text + bits(left, 7) + "0"


class _Gorilla:
    def __init__(self) -> None:
        self.lead = self.trail = 65

    def next(self, value: float, before: float) -> str:
        last = NAN if math.isnan(before) else float_bits(before, 64)
        xor = (float_bits(value, 64) ^ last) & MASK
        if not xor:
            return "0"
        lead, trail = 64 - xor.bit_length(), (xor & -xor).bit_length() - 1
        if lead >= self.lead and trail >= self.trail:
            return "10" + bits(xor >> self.trail, 64 - self.lead - self.trail)
        self.lead, self.trail = lead, trail
        length = 64 - lead - trail
        return "11" + bits(lead, 6) + bits(length - 1, 6) + bits(xor >> trail, length)
