"""Is it a TsFile, and is it closed? Decided from the first and the last few bytes.

A TsFile begins and ends with the magic; the one at the end is the last thing its writer writes,
so an open file, and one whose writer crashed, has none. There is no checksum anywhere.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from common.tsfile.byte_source import ByteSource, TsFileOrigin, opened
from common.tsfile.layout import FOOTER_SIZE, HEAD_SIZE, MAGIC, VERSIONS
from common.tsfile.primitives import INT32, Corrupt

__all__ = ["Status", "TailVerdict", "read_status", "status_of"]

_LEGACY_HEADS: Final = (b"000001", b"000002", b"v0.")  # TsFile 1, 2, and before Apache
_SEEN_HEAD: Final = len(MAGIC) + 6
_LEAST_METADATA: Final = 10  # no tables, no schemas, int64 meta offset (v4)


class Status(enum.StrEnum):
    """What a file is.

    ``UNSEALED`` covers every truncation of a good file, down to a mere beginning of the magic;
    zero bytes are ``EMPTY``. Where a truncation happens to end in the six bytes of the magic (a
    text value may hold them) it is ``CORRUPT``: nothing tells the two apart, and neither is
    closed.
    """

    COMPLETE = "complete"
    UNSEALED = "unsealed"
    EMPTY = "empty"
    LEGACY = "legacy"
    CORRUPT = "corrupt"
    NOT_A_TSFILE = "not_a_tsfile"


class TailVerdict(msgspec.Struct, frozen=True):
    """What a file is, and why.

    Attributes:
        status: the verdict.
        version: 3 or 4, None where the file does not get as far as to say it.
        size: of the file, in bytes.
        reason: what was found, and where, for a person.
    """

    status: Status
    version: int | None
    size: int
    reason: str

    @property
    def complete(self) -> bool:
        """Whether the file is a closed TsFile."""
        return self.status is Status.COMPLETE


def read_status(source: TsFileOrigin) -> TailVerdict:
    """Judge a file by its head, its tail magic and the sanity of its footer: two short reads.

    ``COMPLETE`` says that a writer has closed the file, not that its index is sound: that is
    ``read_tail``.

    Raises:
        OSError: the file cannot be read.
    """
    with opened(source) as file:
        return status_of(file)


def status_of(file: ByteSource) -> TailVerdict:
    """See ``read_status``."""
    size = file.size
    try:
        head = file.read(0, min(size, _SEEN_HEAD))
        last = file.read(size - FOOTER_SIZE, FOOTER_SIZE) if size >= FOOTER_SIZE else head
    except Corrupt as shrank:
        return TailVerdict(Status.CORRUPT, None, size, str(shrank))
    return _judge(size, head, last)


def _judge(size: int, head: bytes, last: bytes) -> TailVerdict:
    if not size:
        return TailVerdict(Status.EMPTY, None, 0, "the file has no bytes")
    if not head.startswith(MAGIC):
        if MAGIC.startswith(head):
            reason = f"the file ends after {size} bytes of the magic"
            return TailVerdict(Status.UNSEALED, None, size, reason)
        reason = f"the file begins with {head[:6]!r} instead of {MAGIC!r}"
        return TailVerdict(Status.NOT_A_TSFILE, None, size, reason)
    after = head[len(MAGIC) :]
    if after.startswith(_LEGACY_HEADS) or (
        0 < len(after) < 6 and any(mark.startswith(after) for mark in _LEGACY_HEADS)
    ):
        name = after.decode("ascii", "replace")
        reason = f"version {name!r} at offset 6: a TsFile of before version 3, which is not read"
        return TailVerdict(Status.LEGACY, None, size, reason)
    version = after[0] if after else None
    sealed = size >= len(MAGIC) + HEAD_SIZE and last.endswith(MAGIC)
    if version is not None and version not in VERSIONS:
        status = Status.CORRUPT if sealed else Status.NOT_A_TSFILE
        return TailVerdict(status, None, size, f"version {version} at offset 6 is neither 3 nor 4")
    if not sealed:
        reason = "no magic at the end: the file is open, cut off, or its writer crashed"
        return TailVerdict(Status.UNSEALED, version, size, reason)
    return _footer(size, version, last)


def _footer(size: int, version: int | None, last: bytes) -> TailVerdict:
    (length,) = INT32(last, 0)
    at = size - FOOTER_SIZE
    if length < _LEAST_METADATA:
        reason = f"metadata size {length} at offset {at} is too small for any metadata"
    elif length > at - HEAD_SIZE - 1:
        reason = f"metadata size {length} at offset {at} is larger than the file has room for"
    else:
        return TailVerdict(Status.COMPLETE, version, size, "magic at both ends, footer in order")
    return TailVerdict(Status.CORRUPT, version, size, reason)
