"""A request's body on its way, as fast as the budget of the line allows."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import msgspec

from common.network.bandwidth import LARGEST_PIECE, Bandwidth

__all__ = ["Departure", "PacedBody"]

_SMALLEST_PIECE = 1 << 14
"""Each piece has the time-out of a whole wait: on a line that is slow by itself they stay small."""
_QUICK_S = 0.02


class Departure(msgspec.Struct, frozen=True):
    """How far a body has gone, for whoever waits to send the next one.

    Attributes:
        begun: the head of its request is out.
        out: the line has taken all of it.
    """

    begun: threading.Event = msgspec.field(default_factory=threading.Event)
    out: threading.Event = msgspec.field(default_factory=threading.Event)

    def over(self) -> None:
        """Nothing more of it will go."""
        self.begun.set()
        self.out.set()


class PacedBody:
    """A request body that is given as fast as the line's budget allows, without a copy.

    It has a length, which is what requests needs to send a `Content-Length`, and gives its pieces
    in order, each once it may be sent: larger ones while the line takes them quickly.

    Args:
        content: the bytes.
        bandwidth: the budget.
        departure: hears of it.
    """

    def __init__(
        self, content: bytes, bandwidth: Bandwidth, departure: Departure | None = None
    ) -> None:
        self._content = memoryview(content)
        self._bandwidth = bandwidth
        self._departure = departure or Departure()

    def __len__(self) -> int:
        return len(self._content)

    def __iter__(self) -> Iterator[bytes]:
        self._departure.begun.set()
        at, size = 0, _SMALLEST_PIECE
        while at < len(self._content):
            piece = self._content[at : at + min(size, self._bandwidth.piece())]
            self._bandwidth.take(len(piece))
            begin = self._bandwidth.now()
            yield piece  # type: ignore[misc]  # a socket takes any buffer
            at += len(piece)
            quick = self._bandwidth.now() - begin < _QUICK_S
            size = min(size * 2, LARGEST_PIECE) if quick else max(size // 2, _SMALLEST_PIECE)
        self._departure.over()
