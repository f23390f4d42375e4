"""Where the tags and attributes of a commit go in the tlog, and as what: the same for ever.

See `receiver.metadata.log.tlog` for the form of an entry.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import xxhash

from receiver.metadata.model import records
from receiver.metadata.model.errors import TagsTooLargeError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ENTRY", "Layout", "encode_entry", "layout"]

ENTRY = struct.Struct("<IQ")
"""What stands before the content of an entry: its length and its check."""
_encoder = msgspec.msgpack.Encoder()
_NOTHING: dict[str, str] = {}


class Layout(NamedTuple):
    """Where the entries of a commit go.

    Attributes:
        offsets: for each operation, None if it has no entry; for `SeriesCreated` one offset a
            series, -1 for a series without tags and attributes; for `TagsSet` a single one.
        content: the entries, one behind the other.
    """

    offsets: list[Sequence[int] | None]
    content: bytes


def layout(ops: Sequence[records.Op], start: int, *, limit: int | None = None) -> Layout | None:
    """The entries of a commit, in the order of its operations; None if it has none.

    Args:
        ops: of the commit.
        start: offset of the first entry.
        limit: bytes of the tags and attributes of one series, at most.

    Raises:
        TagsTooLargeError: a series has more; it is named.
    """
    for op in ops:
        kind = type(op)
        if kind is records.TagsSet or (
            kind is records.SeriesCreated and (op.tags or op.attributes)  # type: ignore[union-attr]
        ):
            return _layout(ops, start, limit)
    return None


def _layout(ops: Sequence[records.Op], start: int, limit: int | None) -> Layout | None:
    pieces: list[bytes] = []
    offsets: list[Sequence[int] | None] = []
    at = start
    for op in ops:
        contents = _contents(op)
        places: list[int] | None = None if contents is None else []
        for number, content in enumerate(contents or ()):
            if content is None:
                places.append(-1)  # type: ignore[union-attr]
                continue
            if limit is not None and len(content) > limit:
                raise _too_large(op, number, len(content), limit)
            entry = encode_entry(at, content)
            places.append(at)  # type: ignore[union-attr]
            pieces.append(entry)
            at += len(entry)
        offsets.append(places)
    return Layout(offsets, b"".join(pieces)) if pieces else None


def _contents(op: records.Op) -> list[bytes | None] | None:
    """The contents of the entries of an operation, None for a series without."""
    if type(op) is records.TagsSet:
        return [_encoder.encode((op.tags, op.attributes))]
    if type(op) is not records.SeriesCreated or not (op.tags or op.attributes):
        return None
    nothing = [_NOTHING] * len(op.names)
    return [
        _encoder.encode((tags, attributes)) if tags or attributes else None
        for tags, attributes in zip(op.tags or nothing, op.attributes or nothing, strict=True)
    ]


def encode_entry(at: int, content: bytes) -> bytes:
    """An entry for the offset `at`."""
    return ENTRY.pack(len(content), xxhash.xxh3_64_intdigest(content, seed=at)) + content


def _too_large(op: records.Op, number: int, size: int, limit: int) -> TagsTooLargeError:
    return TagsTooLargeError(
        f"the tags and attributes of {_series(op, number)} take {size} bytes; "
        f"at most {limit} are allowed (tag_bytes)",
        extra={"size": size, "limit": limit},
    )


def _series(op: records.Op, number: int) -> str:
    if isinstance(op, records.SeriesCreated):
        return f"{op.device}.{op.names[number]}"
    return op.path if isinstance(op, records.TagsSet) else ""
