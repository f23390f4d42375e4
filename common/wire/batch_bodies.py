"""Many small files in one request, and the checksum of a block."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from common.digests import xxh3_64
from common.errors import DigestError, ProtocolError
from common.wire.base import Count, Struct, decode, encode
from common.wire.problem_documents import Problem


class BatchResult(Struct, frozen=True, kw_only=True):
    """What became of one file of a batch; `problem` is None if it is on disk and verified."""

    path: str
    problem: Problem | None = None
    """Why it was not taken; None if it is here."""
    quarantined: bool = False
    """Whether it is in quarantine, as it is no TsFile that is whole."""


class BatchAnswer(Struct, frozen=True, kw_only=True):
    """Results in the order of the batch."""

    results: list[BatchResult]
    """One for each file."""


class BatchEntry(Struct, frozen=True, kw_only=True):
    """Header of one file inside a batch body."""

    path: str
    size: Count
    md5: str
    xxh3: str
    """xxh3-64 of the bytes that follow, 16 hex digits."""


_BATCH_MAGIC = b"TSFB\x01"
_LENGTH = struct.Struct(">I")
MAX_BATCH_HEADER = 4096


def encode_batch(files: Iterable[tuple[BatchEntry, bytes]]) -> bytes:
    """The body of `POST /tasks/<id>/batch`.

    Layout: `TSFB`, version byte 1, then for each file uint32 big-endian header length, the header
    (`BatchEntry` as JSON), and `size` bytes.
    """
    out = [_BATCH_MAGIC]
    for entry, content in files:
        assert len(content) == entry.size
        header = encode(entry)
        out += (_LENGTH.pack(len(header)), header, content)
    return b"".join(out)


def decode_batch(body: bytes | memoryview) -> Iterator[tuple[BatchEntry, memoryview]]:
    """Cut a batch body into its files; each length is checked against what is left.

    Raises:
        ProtocolError: the body is not a batch.
        DigestError: the bytes of a file do not match their checksum (raised by the caller's use of
            the entry, not here: an entry with a bad checksum is still yielded).
    """
    view = memoryview(body)
    if bytes(view[:4]) != _BATCH_MAGIC[:4]:
        raise ProtocolError("batch: does not begin with TSFB")
    if bytes(view[4:5]) != _BATCH_MAGIC[4:]:
        raise ProtocolError(f"batch: version {bytes(view[4:5])!r} is not known here")
    at = len(_BATCH_MAGIC)
    while at < len(view):
        if len(view) - at < _LENGTH.size:
            raise ProtocolError(f"batch: {len(view) - at} stray bytes at offset {at}")
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if length > min(MAX_BATCH_HEADER, len(view) - at):
            raise ProtocolError(f"batch: header of {length} bytes at offset {at} is too long")
        entry = decode(bytes(view[at : at + length]), BatchEntry, "batch header")
        at += length
        if not 0 <= entry.size <= len(view) - at:
            raise ProtocolError(
                f"batch: {entry.path!a} claims {entry.size} bytes, {len(view) - at} left"
            )
        yield entry, view[at : at + entry.size]
        at += entry.size


def check_block(content: memoryview | bytes, expected: str, path: str) -> None:
    """Compare a block with its xxh3-64.

    Raises:
        DigestError: they differ.
    """
    found = xxh3_64(content)
    if found != expected:
        raise DigestError(f"{path}: block checksum is {found}, the sender said {expected}")
