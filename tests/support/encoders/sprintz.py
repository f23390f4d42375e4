"""SPRINTZ over the bits of values as integers, and what a database reads of what it wrote."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.encoders import gorilla, rle
from tests.support.encoders.bitstream import bits, to_bytes, uvarint, wrap

SHIFTS = {32: (2, 8), 64: (3, 16)}


class _Predictor:
    def __init__(self, size: int) -> None:
        self.size = size
        self.learnt = self.change = 0

    def predict(self, before: int) -> int:
        slow, down = SHIFTS[self.size]
        share = wrap((self.learnt >> slow) * self.change, self.size) >> down
        return wrap(before + share, self.size)

    def train(self, before: int, value: int, error: int) -> None:
        gradient = -self.change if error > 0 else self.change
        self.learnt = wrap(self.learnt - gradient, 32)
        self.change = wrap(value - before, self.size)


def values(given: Sequence[int], size: int, *, floating: bool) -> bytes:
    """A page: blocks of 9, the rest as RLE or GORILLA."""
    out = bytearray()
    whole = len(given) // 9 * 9
    for at in range(0, whole, 9):
        out += _block(given[at : at + 9], size, floating)
    rest = given[whole:]
    if rest:
        end = gorilla.NAN[size]
        out.append(0x80 | len(rest))
        out += gorilla.second(rest, size, end) if floating else rle.integers(rest, size)
    return bytes(out)


def _block(given: Sequence[int], size: int, floating: bool) -> bytes:
    codes = _codes([canonical(each, size, floating) for each in given], size)
    width = max(1, *((code & ((1 << size) - 1)).bit_length() for code in codes))
    first = given[0] & ((1 << size) - 1)
    head = uvarint(first) if size == 32 and not floating else first.to_bytes(size // 8, "big")
    return bytes([width]) + head + to_bytes("".join(bits(code, width) for code in codes))


def _codes(given: Sequence[int], size: int) -> list[int]:
    predictor, before, codes = _Predictor(size), given[0], []
    for value in given[1:]:
        error = wrap(value - predictor.predict(before), size)
        predictor.train(before, value, error)
        codes.append(wrap(-2 * error if error <= 0 else 2 * error - 1, size))
        before = value
    return codes


def read_back(given: Sequence[int], size: int, *, floating: bool) -> list[int]:
    """What a reader makes of the page: the values, where none of the errors was too large."""
    found: list[int] = []
    whole = len(given) // 9 * 9
    for at in range(0, whole, 9):
        block = [canonical(each, size, floating) for each in given[at : at + 9]]
        predictor, before = _Predictor(size), block[0]
        found.append(given[at])
        for code in _codes(block, size):
            half = wrap(-code, size) if code % 2 == 0 else wrap(code + 1, size)
            error = half // 2  # even, so it does not matter how a language rounds
            value = wrap(predictor.predict(before) + error, size)
            predictor.train(before, value, error)
            found.append(value)
            before = value
    return found + list(given[whole:])


def canonical(value: int, size: int, floating: bool) -> int:
    """The bits of a float with one NaN."""
    infinity = {32: 0x7F800000, 64: 0x7FF0000000000000}[size]
    nan = floating and value & ((1 << (size - 1)) - 1) > infinity
    return gorilla.NAN[size] if nan else value
