"""What can be wrong with encoded values: codes that kernels return, and the errors made of them.

Compiled code raises nothing. A kernel returns one of these numbers, 0 for none, and its caller
makes a ``BadPage`` of it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from common.tsfile import DataType, Encoding

__all__ = [
    "BAD_COUNT",
    "BAD_INDEX",
    "BAD_LENGTH",
    "BAD_MARK",
    "BAD_PRECISION",
    "BAD_WIDTH",
    "FEWER",
    "MORE",
    "OVERFLOW",
    "TOO_LARGE",
    "TRAILING",
    "TRUNCATED",
    "BadPage",
    "Unsupported",
    "describe",
]

TRUNCATED: Final = 1
BAD_WIDTH: Final = 2
BAD_LENGTH: Final = 3
OVERFLOW: Final = 4
TRAILING: Final = 5
MORE: Final = 6
FEWER: Final = 7
BAD_COUNT: Final = 8
BAD_INDEX: Final = 9
BAD_PRECISION: Final = 10
BAD_MARK: Final = 11
TOO_LARGE: Final = 12

_WORDS = {
    TRUNCATED: "the encoded values end in the middle of one",
    BAD_WIDTH: "a bit width that no value can have",
    BAD_LENGTH: "a length that is negative or larger than what is left",
    OVERFLOW: "a number larger than its type holds",
    TRAILING: "bytes are left over behind the last value",
    MORE: "more values than the file says there are",
    FEWER: "fewer values than the file says there are",
    BAD_COUNT: "a count of values that is negative or contradicts its own bytes",
    BAD_INDEX: "an index that is not in the page's dictionary",
    BAD_PRECISION: "a number of decimal places that no writer uses",
    BAD_MARK: "a mark that the encoding does not have",
    TOO_LARGE: "the values would take more memory than a page may",
}


def describe(code: int) -> str:
    """What a code stands for, in words."""
    return _WORDS.get(code, f"decoding error {code}")


class BadPage(Exception):
    """Encoded values that cannot be decoded, or are not as many as they should be.

    Attributes:
        reason: what is wrong, in words.
        at: where, as an index into the bytes that were handed in.
    """

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(f"{reason} (at byte {at})")
        self.reason = reason
        self.at = at


class Unsupported(Exception):
    """An encoding that is not read, or not for this type, or too much for one page.

    Attributes:
        encoding: code in the chunk header.
        data_type: code in the chunk header.
        reason: in words, with both names.
    """

    def __init__(self, encoding: int, data_type: int, why: str = "") -> None:
        self.encoding = encoding
        self.data_type = data_type
        pair = f"{_name(Encoding, encoding)} of {_name(DataType, data_type)}"
        self.reason = f"{pair}: {why}" if why else f"{pair} is not an encoding that is read"
        super().__init__(self.reason)


def _name(kind: type[IntEnum], code: int) -> str:
    try:
        return kind(code).name
    except ValueError:
        return f"{kind.__name__.lower()} {code}"
