"""Frames on a socket between two processes: a length (uint32, big-endian), and so many bytes."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["receive_frame", "send_frame"]

_HEAD: Final = struct.Struct(">I")
_PIECE: Final = 1 << 20
_LOOK: Final = 0.5
"""Seconds between two questions whether to wait on."""


def send_frame(line: socket.socket, content: bytes) -> None:
    """Send a frame, however long it takes."""
    line.settimeout(None)
    line.sendall(_HEAD.pack(len(content)) + content)


def receive_frame(line: socket.socket, stopped: Callable[[], bool] = lambda: False) -> bytes:
    """Receive a frame.

    Args:
        line: to the other end.
        stopped: asked every half second while nothing comes.

    Raises:
        EOFError: the other end is gone, or it was stopped.
    """
    (length,) = _HEAD.unpack(_exactly(line, _HEAD.size, stopped))
    return _exactly(line, length, stopped)


def _exactly(line: socket.socket, length: int, stopped: Callable[[], bool]) -> bytes:
    pieces, missing = [], length
    line.settimeout(_LOOK)
    while missing:
        try:
            piece = line.recv(min(missing, _PIECE))
        except TimeoutError:
            if stopped():
                raise EOFError from None
            continue
        if not piece:
            raise EOFError
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)
