"""Bodies that come compressed: one frame of Zstandard, of a size that was said before it came.

Whoever sends it is not believed: the size in the head is judged like the length of a body that is
as it is, no byte beyond it is made, and the window is the 8 MiB that HTTP allows (RFC 9659). Who
reads a body decompresses it, a piece at a time, so many at once as there are workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import wire, zstd
from common.errors import ProtocolError
from common.text_numbers import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EncodingError", "decompress", "decompressed_size"]

_WINDOW_LOG = 23
_PIECE = 1 << 18
_KEY = wire.SIZE_HEADER.upper().replace("-", "_")


class EncodingError(ProtocolError):
    """The body has a coding that is not taken here."""

    http_status = 415


def decompressed_size(headers: Mapping[str, str]) -> int | None:
    """The bytes that a body will have, from its head; None for one that is as it is.

    Args:
        headers: keys as WSGI spells them, without `HTTP_`.

    Raises:
        EncodingError: of another coding.
        ProtocolError: it does not say its size.
    """
    coding = headers.get("CONTENT_ENCODING", "").strip().lower()
    if coding in ("", "identity"):
        return None
    if coding != zstd.ZSTD or zstd.codec() is None:
        raise EncodingError(f"Content-Encoding {coding[:40]!a} is not taken here")
    size = whole_number(headers.get(_KEY, ""), 18)
    if not size:
        raise ProtocolError(f"{wire.SIZE_HEADER}: expected the bytes of the decompressed body")
    return size


def decompress(body: memoryview, into: memoryview) -> None:
    """Decompress one frame; it fills `into`, which is all that it may become.

    Raises:
        ProtocolError: it is no frame, not a whole one, not the only one, or of another size.
    """
    library = zstd.codec()
    window = {library.DecompressionParameter.window_log_max: _WINDOW_LOG}
    frame = library.ZstdDecompressor(options=window)
    taken = made = 0
    try:
        while not frame.eof:
            came: bytes | memoryview = b""
            if frame.needs_input:
                came = body[taken : taken + _PIECE]
                taken += len(came)
                if not came:
                    raise ProtocolError("the compressed body ends before its frame does")
            piece = frame.decompress(came, min(_PIECE, len(into) - made + 1))
            if made + len(piece) > len(into):
                raise ProtocolError(f"the body becomes more than the {len(into)} bytes it said")
            into[made : made + len(piece)] = piece
            made += len(piece)
    except library.ZstdError as error:
        raise ProtocolError(f"the compressed body is no frame of zstd: {error}") from error
    if made < len(into):
        raise ProtocolError(f"the body becomes {made} bytes, {len(into)} were said")
    if frame.unused_data or taken < len(body):
        raise ProtocolError("there are bytes behind the frame of the compressed body")
