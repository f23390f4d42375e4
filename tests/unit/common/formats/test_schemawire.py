"""Blocks of a schema log."""

from __future__ import annotations

import pytest

from common.errors import DigestError, ProtocolError
from common.formats.schemawire import decode_block, encode_schema_block
from common.wire import SchemaKind

BODY = encode_schema_block(
    SchemaKind.TEXT, "log", 10, 5, b"2,root.a\n", {700: b"slot one", 1400: b"two"}
)


def test_a_block_comes_out_as_it_went_in() -> None:
    block = decode_block(BODY)
    assert (block.head.kind, block.head.identity) == (SchemaKind.TEXT, "log")
    assert (block.head.base, block.head.at, block.head.size) == (10, 5, 9)
    assert bytes(block.data) == b"2,root.a\n"
    assert {at: bytes(slot) for at, slot in block.slots.items()} == {700: b"slot one", 1400: b"two"}
    assert block.end == len(BODY)


def test_blocks_stand_one_behind_the_other() -> None:
    second = decode_block(BODY + BODY, len(BODY))
    assert bytes(second.data) == b"2,root.a\n"
    assert second.end == 2 * len(BODY)


def test_every_truncation_is_noticed() -> None:
    for size in range(len(BODY)):
        with pytest.raises(ProtocolError):
            decode_block(BODY[:size])


def test_every_flipped_byte_is_noticed() -> None:
    for at in range(len(BODY)):
        bad = bytearray(BODY)
        bad[at] ^= 0x01
        try:
            block = decode_block(bytes(bad))
        except (ProtocolError, DigestError):
            continue
        # What may differ is a number of the header, which the stage compares with what it has.
        assert block.head != decode_block(BODY).head
        assert bytes(block.data) == b"2,root.a\n"


def test_sizes_are_checked_before_anything_is_made_of_them() -> None:
    huge = encode_schema_block(SchemaKind.TEXT, "log", 0, 0, b"x").replace(b'"size":1', b'"size":9')
    with pytest.raises(ProtocolError):
        decode_block(huge)
    slot = encode_schema_block(SchemaKind.TEXT, "log", 0, 0, b"", {0: bytes(1 << 17)})
    with pytest.raises(ProtocolError, match="slot"):
        decode_block(slot)
