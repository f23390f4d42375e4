"""Chunk headers: what only the data section knows of a series, and a look at whether it is there.

Layout: byte marker (1 or 5 in its low six bits), vstr measurement, uvarint size of the pages,
bytes data type, compression, encoding; the pages follow. Source: apache/tsfile, ``ChunkHeader``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from common.tsfile.byte_source import ByteSource
from common.tsfile.index import SeriesRun
from common.tsfile.primitives import Malformed, located, read_uvarint, read_vstr
from common.tsfile.series import chunk_offsets, entries

__all__ = ["LONGEST_FRAME", "MARKERS", "read_codecs", "read_header"]

MARKERS: Final = (1, 5)
"""Several pages, one page."""
LONGEST_FRAME: Final = 1 + 5 + 5 + 3
"""All of a header but its name, at most."""


def read_codecs(file: ByteSource, buf: bytes, runs: Sequence[SeriesRun], limit: int) -> bytes:
    """Read and check the header of each chunk of some runs, one short read each.

    Args:
        file: what holds the chunks.
        buf: the index, which ``runs`` are positions in; its entries have been checked.
        runs: of one device.
        limit: where the data section ends.

    Returns:
        Two bytes a chunk, in the index's order: encoding, compression.

    Raises:
        Corrupt: a header is not where the index says, or is of another series.
    """
    codecs = bytearray()
    for begin, end in runs:
        for entry in entries(buf, begin, end):
            for offset in chunk_offsets(buf, entry):
                codecs += read_header(file, offset, entry[1], entry[2], limit)
    return bytes(codecs)


def read_header(file: ByteSource, offset: int, name: str, code: int, limit: int) -> bytes:
    """Read and check the header of one chunk: encoding, compression.

    Args:
        file: what holds the chunk.
        offset: of the header.
        name: of the series, as the index has it.
        code: of its type.
        limit: where the data section ends.

    Raises:
        Corrupt: there is no header of this series.
    """
    header = file.read(offset, min(LONGEST_FRAME + len(name.encode()), limit - offset))
    with located(offset, "the chunk header"):
        return _check_header(header, name, code, limit - offset)


def _check_header(header: bytes, name: str, code: int, room: int) -> bytes:
    if header[0] & 0x3F not in MARKERS:
        raise Malformed(f"a chunk of series {name!r} begins with {header[0]:#04x}", 0)
    found, pos = read_vstr(header, 1)
    size, pos = read_uvarint(header, pos)
    data_type, compression, encoding = header[pos], header[pos + 1], header[pos + 2]
    if (found, data_type) != (name, code):
        raise Malformed(
            f"a chunk of series {name!r}, type {code}, is of series {found!r}, type {data_type}", 0
        )
    if pos + 3 + size > room:
        raise Malformed(f"a chunk of series {name!r} has {size} bytes, more than there are", 0)
    return bytes((encoding, compression))
