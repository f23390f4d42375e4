"""The numbers in ids of transactions: in no order, and none twice.

Random ones will not do: of 5,000 a second one is there twice every three minutes with 31 bits, and
what became of the one transaction would be told of the other. So they are counted, and each count
is scattered by steps that can be taken back, which the process draws when it starts.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NUMBER_BITS", "TxnNumbers"]

NUMBER_BITS: Final = 31
_BLOCK: Final = 1024
"""That are made at a time: one at a time costs as much as the rest of a begin."""


class TxnNumbers:
    """Above 0 and below 2^bits, each once until there are no more; for all threads.

    Args:
        bits: of a number, three at least.
    """

    def __init__(self, bits: int = NUMBER_BITS) -> None:
        self._mask = np.uint64((1 << bits) - 1)
        self._half = np.uint64((bits + 1) // 2)
        # An odd factor has an inverse, and so does a shift to the right by half of the bits: what
        # is scattered by them stays apart.
        self._factors = [np.uint64(secrets.randbits(bits) | 1) for _ in range(3)]
        self._start = np.uint64(secrets.randbits(bits))
        self._blocks = itertools.count()
        self._block: Iterator[int] = iter(())

    def take(self) -> int:
        """The next one. Needs no lock: each thread that finds a block used up makes another."""
        while not (number := next(self._block, 0)):
            begin = next(self._blocks) * _BLOCK
            counts = np.arange(begin, begin + _BLOCK, dtype=np.uint64)
            self._block = iter([each for each in self._scattered(counts).tolist() if each])
        return number

    def _scattered(self, counts: NDArray[np.uint64]) -> NDArray[np.uint64]:
        found = (counts + self._start) & self._mask
        for factor in self._factors:
            found = (found * factor) & self._mask
            found ^= found >> self._half
        return found
