"""Decoders of structs, each made once and by one thread at a time.

What msgspec must know of a struct it finds out when the struct is first decoded. Two threads that
do so at once have ended a sender with a segmentation fault (msgspec 0.22.0, Python 3.11.7).
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

__all__ = ["from_json"]

T = TypeVar("T")

_making = threading.Lock()
_made: dict[Any, msgspec.json.Decoder[Any]] = {}


def from_json(data: bytes, kind: type[T]) -> T:
    """A value of this kind.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError, RecursionError: it is none.
    """
    decoder = _made.get(kind)
    if decoder is None:
        with _making:
            decoder = _made[kind] = _made.get(kind) or msgspec.json.Decoder(kind)
    found: T = decoder.decode(data)
    return found
