"""CHIMP over the bits of values as integers: the ring, and the table of places by lowest bits."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.encoders.bitstream import bits, to_bytes

LEADS = (0, 8, 12, 16, 18, 20, 22, 24)


def values(given: Sequence[int], size: int, end: int) -> bytes:
    """A page; ``end`` is written behind the values as one of them."""
    ring, field = (128, 6) if size == 64 else (64, 5)
    which = ring.bit_length() - 1
    threshold = field + which
    key_mask = (1 << (threshold + 1)) - 1
    mask = (1 << size) - 1
    seen: list[int] = []
    places: dict[int, int] = {}
    lead_before = -1
    text = ""
    for each in [*given, end]:
        value = each & mask
        if not seen:
            text += bits(value, size)
        else:
            last = len(seen) - 1
            at = places.get(value & key_mask, 0)
            xor, trail = value ^ seen[last], 0
            if last - at < ring:
                candidate = value ^ seen[at]
                trail = _trail(candidate, size)
                if trail > threshold:
                    last, xor = at, candidate
            lead = max(each for each in LEADS if each <= size - xor.bit_length())
            code = bits(LEADS.index(lead), 3)
            if xor == 0:
                text += "00" + bits(last % ring, which)
                lead_before = -1
            elif trail > threshold:
                length = size - lead - trail
                text += "01" + bits(last % ring, which) + code + bits(length, field)
                text += bits(xor >> trail, length)
                lead_before = -1
            elif lead == lead_before:
                text += "10" + bits(xor, size - lead)
            else:
                text += "11" + code + bits(xor, size - lead)
                lead_before = lead
        places[value & key_mask] = len(seen)
        seen.append(value)
    return to_bytes(text + ("00000000" if len(text) % 8 == 0 else ""))


def _trail(number: int, size: int) -> int:
    return (number & -number).bit_length() - 1 if number else size
