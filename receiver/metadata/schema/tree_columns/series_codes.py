"""What a row keeps of its series: data type, encoding and compression in one number."""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from receiver.metadata.schema.tree_columns.growing_columns import Ints

__all__ = ["series_codes"]


def series_codes(types: bytes, encodings: bytes, compressions: bytes) -> Ints:
    """A byte of each from the lowest one on, as `NodeTree` has it."""
    codes = bytearray(4 * len(types))
    codes[0::4], codes[1::4], codes[2::4] = types, encodings, compressions
    found = array("i", bytes(codes))
    if sys.byteorder == "big":
        found.byteswap()
    return found
