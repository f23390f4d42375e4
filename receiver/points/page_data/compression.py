"""Taking pages out of their compression.

What the names in a chunk header stand for, by the writers' sources (apache/tsfile, ``ICompressor``
of Java 0.12 to 2.x; ``compress/`` of C++) and their files:

    UNCOMPRESSED  as is
    SNAPPY        raw block, which begins with its own uncompressed length
    GZIP          one gzip member (CRC-32 and length behind it)
    LZO           LZO1X stream; the C++ library alone has it
    LZ4           raw block without a frame; it does not know its own length
    ZSTD          frame
    LZMA2         .xz container around LZMA2 (dictionary 8 MiB)

SDT, PAA and PLA are numbers in the format that no writer accepts. Only GZIP and LZMA2 carry a
checksum, so damage elsewhere is found by what comes out (the
library for LZ4 lets a distance of 0 pass, which no writer makes).
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable
from typing import Final

import lz4.block
import numpy as np
import pyarrow as pa

from common.tsfile import Compression
from receiver.points.encodings import Bytes
from receiver.points.jit import readonly
from receiver.points.page_data.lzo import BAD_DISTANCE, NO_END_MARK, OVERLONG, decompress_lzo

__all__ = ["BadCompression", "UnsupportedCompression", "decompress"]

_LZMA_MEMORY: Final = 96 << 20
"""Enough for the dictionary of the highest preset (64 MiB); a header may ask for 4 GiB."""


class BadCompression(Exception):
    """Compressed bytes that cannot be decompressed, or not to the size that they should have."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnsupportedCompression(Exception):
    """A compression that is not read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def decompress(code: int, data: Bytes, size: int) -> Bytes:
    """Decompress the bytes of one page.

    Args:
        code: of the compression, as in the chunk header.
        data: uint8, contiguous; all of the page's bytes and no others.
        size: what has to come out. Memory for so much may be taken at once: it is for the caller
            to bound.

    Returns:
        ``size`` bytes, read-only; of an uncompressed page ``data`` itself.

    Raises:
        BadCompression: the bytes are broken, more or less than ``size`` comes out, or bytes are
            left over behind the stream.
        UnsupportedCompression: no writer has this compression, or its header asks for more
            memory than any of them does.
        ValueError: ``size`` is negative.
    """
    if size < 0:
        raise ValueError(f"a page of {size} bytes")
    codec = _CODECS.get(code)
    if codec is None:
        raise UnsupportedCompression(f"{_name(code)} is not a compression that is read")
    return readonly(codec(data, size))


def _name(code: int) -> str:
    try:
        return Compression(code).name
    except ValueError:
        return f"compression {code}"


def _wrong_size(name: str, size: int) -> BadCompression:
    return BadCompression(f"the {name} data is not one of {size} bytes")


def _uncompressed(data: Bytes, size: int) -> Bytes:
    if len(data) != size:
        raise BadCompression(f"{len(data)} bytes that are not compressed, and should be {size}")
    return data


def _arrow(name: str) -> Callable[[Bytes, int], Bytes]:
    """A codec of Arrow. Where less than ``size`` comes out, the rest is whatever stood there."""
    codec = pa.Codec(name)

    def run(data: Bytes, size: int) -> Bytes:
        try:
            out = codec.decompress(pa.py_buffer(data), decompressed_size=size)
        except (OSError, pa.ArrowInvalid) as error:
            raise BadCompression(f"{name}: {error}") from None
        return np.frombuffer(out, np.uint8)

    return run


_arrow_snappy: Final = _arrow("snappy")
_arrow_zstd: Final = _arrow("zstd")


def _snappy(data: Bytes, size: int) -> Bytes:
    length = shift = 0
    for byte in data[:5].tolist():
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if length != size:
        raise _wrong_size("snappy", size)
    return _arrow_snappy(data, size)


def _lz4(data: Bytes, size: int) -> Bytes:
    try:
        out = lz4.block.decompress(data, uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError) as error:
        raise BadCompression(f"LZ4: {error}") from None
    if len(out) != size:
        raise _wrong_size("LZ4", size)
    return np.frombuffer(out, np.uint8)


def _zstd(data: Bytes, size: int) -> Bytes:
    if len(data) == 0 and size == 0:
        raise _wrong_size("ZSTD", size)
    return _arrow_zstd(data, size)


def _gzip(data: Bytes, size: int) -> Bytes:
    stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        out = stream.decompress(data.data, size + 1)
    except zlib.error as error:
        raise BadCompression(f"gzip: {error}") from None
    return _whole("gzip", out, size, ended=stream.eof, left=len(stream.unused_data))


def _lzma2(data: Bytes, size: int) -> Bytes:
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_MEMORY)
    try:
        out = stream.decompress(data.data, size + 1)
    except lzma.LZMAError as error:
        if "emory" in str(error):
            raise UnsupportedCompression(
                "an LZMA2 dictionary that needs more than 96 MiB of memory"
            ) from None
        raise BadCompression(f"xz: {error}") from None
    except EOFError:
        raise BadCompression("xz: no data") from None
    return _whole("xz", out, size, ended=stream.eof, left=len(stream.unused_data))


def _whole(name: str, out: bytes, size: int, *, ended: bool, left: int) -> Bytes:
    if len(out) != size:
        raise _wrong_size(name, size)
    if not ended:
        raise BadCompression(f"the {name} stream does not end")
    if left:
        raise BadCompression(f"{left} bytes are left over behind the {name} stream")
    return np.frombuffer(out, np.uint8)


_LZO_WORDS: Final = {
    NO_END_MARK: "the stream ends before its end mark",
    OVERLONG: "more comes out than should",
    BAD_DISTANCE: "a match before the first byte",
}


def _lzo(data: Bytes, size: int) -> Bytes:
    out = np.empty(size, np.uint8)
    length, end, error = decompress_lzo(readonly(data), 0, len(data), out)
    if error:
        raise BadCompression(f"LZO: {_LZO_WORDS[error]} (at byte {end})")
    return _whole_lzo(out, length, size, len(data) - end)


def _whole_lzo(out: Bytes, length: int, size: int, left: int) -> Bytes:
    if length != size:
        raise _wrong_size("LZO", size)
    if left:
        raise BadCompression(f"{left} bytes are left over behind the LZO stream")
    return out


_CODECS: Final[dict[int, Callable[[Bytes, int], Bytes]]] = {
    Compression.UNCOMPRESSED: _uncompressed,
    Compression.SNAPPY: _snappy,
    Compression.GZIP: _gzip,
    Compression.LZO: _lzo,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
    Compression.LZMA2: _lzma2,
}
