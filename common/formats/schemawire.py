"""A block of a schema log, as it travels and as the receiver stages it: `PATCH /tasks/<id>/schema`.

    "TSFS", version byte 1, uint32 big-endian length of the header, header (`SchemaBlock` as JSON),
    `size` bytes of the log, then the slots of the tlog that these speak of, one behind the other

A block checks itself, and says where it ends; so the receiver appends it to a file as it came.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import xxhash

from common.errors import DigestError, ProtocolError
from common.wire import Count, SchemaKind, Struct, decode, encode

__all__ = [
    "LONGEST_IDENTITY",
    "MAX_SLOT",
    "SchemaBlock",
    "SchemaLogBlock",
    "decode_block",
    "encode_schema_block",
]

_MAGIC: Final = b"TSFS\x01"
_LENGTH: Final = struct.Struct(">I")
_HEAD: Final = len(_MAGIC) + _LENGTH.size
LONGEST_IDENTITY: Final = 128
MAX_SLOT: Final = 1 << 16
"""Bytes of tags and attributes of one series that travel."""


class SchemaBlock(Struct, frozen=True, kw_only=True):
    """Header of a block.

    Attributes:
        kind: of the log.
        identity: of the log.
        base: where in the log the blocks begin: 0 for the whole.
        at: bytes of the log in the blocks before this one.
        size: bytes of the log in this one.
        slots: (offset in the tlog, bytes) of each slot that comes with it.
        xxh3: xxh3-64 (hex) of all that follows the header.
    """

    kind: SchemaKind
    identity: str
    base: Count
    at: Count
    size: Count
    slots: Sequence[tuple[Count, Count]] = ()
    xxh3: str


@dataclass(frozen=True, slots=True)
class SchemaLogBlock:
    """A block whose checksum agrees.

    Attributes:
        head: what it is.
        data: of the log.
        slots: offset in the tlog -> trimmed slot.
        end: where it ends in what it was read from.
    """

    head: SchemaBlock
    data: memoryview
    slots: dict[int, memoryview]
    end: int


def encode_schema_block(
    kind: SchemaKind,
    identity: str,
    base: int,
    at: int,
    data: bytes,
    slots: Mapping[int, bytes] | None = None,
) -> bytes:
    """The bytes of a block.

    Args:
        kind: of the log.
        identity: of the log.
        base: where in the log the blocks begin.
        at: bytes of the log in the blocks before.
        data: of the log.
        slots: offset in the tlog -> trimmed slot.
    """
    content = data + b"".join((slots or {}).values())
    header = encode(
        SchemaBlock(
            kind=kind,
            identity=identity,
            base=base,
            at=at,
            size=len(data),
            slots=[(offset, len(slot)) for offset, slot in (slots or {}).items()],
            xxh3=xxhash.xxh3_64_hexdigest(content),
        )
    )
    return b"".join((_MAGIC, _LENGTH.pack(len(header)), header, content))


def decode_block(body: bytes | memoryview, start: int = 0) -> SchemaLogBlock:
    """The block that begins at an offset of `body`.

    Raises:
        ProtocolError: there is none, or it is cut off.
        DigestError: it is not what was sent.
    """
    view = memoryview(body)[start:]
    if bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise ProtocolError("schema: a block begins with TSFS, version 1")
    if len(view) < _HEAD:
        raise ProtocolError("schema: the block is cut off")
    (length,) = _LENGTH.unpack_from(view, len(_MAGIC))
    if length > len(view) - _HEAD:
        raise ProtocolError(f"schema: a header of {length} bytes does not fit into the block")
    head = decode(bytes(view[_HEAD : _HEAD + length]), SchemaBlock, "schema block")
    if not 0 < len(head.identity) <= LONGEST_IDENTITY:
        raise ProtocolError(f"schema: an identity has 1 to {LONGEST_IDENTITY} characters")
    begin = _HEAD + length
    need = head.size + sum(size for _, size in head.slots)
    if need > len(view) - begin:
        raise ProtocolError(f"schema: {need} bytes are announced, {len(view) - begin} came")
    content = view[begin : begin + need]
    found = xxhash.xxh3_64_hexdigest(content)
    if found != head.xxh3:
        raise DigestError(f"schema: the checksum of the block is {found}, {head.xxh3!a} was sent")
    slots: dict[int, memoryview] = {}
    at = head.size
    for offset, size in head.slots:
        if size > MAX_SLOT:
            raise ProtocolError(f"schema: a slot of {size} bytes; at most {MAX_SLOT} are taken")
        slots[offset] = content[at : at + size]
        at += size
    return SchemaLogBlock(head, content[: head.size], slots, start + begin + need)
