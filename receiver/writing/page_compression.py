"""Putting pages into a compression, as the Java writers do. What each is: ``compression``.

LZO, which the C++ library alone reads and has, is exchanged for LZ4 (``compressed_as``).
"""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from typing import Any, Final

import lz4.block
import pyarrow as pa

from common.tsfile import Compression

__all__ = ["compress_page", "compressed_as"]

_FAST_GZIP: Final = 6
"""What Java's streams have: much smaller than the fastest, at half its speed."""
_SNAPPY: Final = pa.Codec("snappy")
_ZSTD: Final = pa.Codec("zstd", compression_level=3)


def compressed_as(code: int) -> Compression:
    """The compression that is written where a file had ``code``: itself, or LZ4."""
    return Compression(code) if code in _CODECS else Compression.LZ4


def compress_page(code: int, data: memoryview) -> bytes:
    """Compress the bytes of one page; ``code`` is one of ``compressed_as``."""
    return _CODECS[code](data)


def _arrow(codec: pa.Codec) -> Callable[[Any], bytes]:
    return lambda data: bytes(codec.compress(data, asbytes=True))


_CODECS: Final[dict[int, Callable[[memoryview], bytes]]] = {
    Compression.UNCOMPRESSED: bytes,
    Compression.SNAPPY: _arrow(_SNAPPY),
    Compression.GZIP: lambda data: gzip.compress(data, _FAST_GZIP, mtime=0),
    Compression.LZ4: lambda data: bytes(lz4.block.compress(data, store_size=False)),
    Compression.ZSTD: _arrow(_ZSTD),
    Compression.LZMA2: lambda data: lzma.compress(data, preset=1),
}
