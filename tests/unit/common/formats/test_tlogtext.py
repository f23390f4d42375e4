"""Slots of a `tlog.txt`."""

from __future__ import annotations

import struct

import pytest

from common.errors import TooLargeError
from common.formats.tlogtext import SLOT, TlogSlotError, read_slot, write_slot


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">i", len(raw)) + raw


def test_a_slot_is_two_maps_of_java_and_zeros() -> None:
    raw = struct.pack(">i", 1) + text("tag1") + text("v1") + struct.pack(">i", 1)
    raw += text("attr1") + text("größe")
    slot = read_slot(raw.ljust(SLOT, b"\0"))
    assert (slot.tags, slot.attributes, slot.size) == (
        {"tag1": "v1"},
        {"attr1": "größe"},
        len(raw),
    )
    assert write_slot(slot.tags, slot.attributes) == raw.ljust(SLOT, b"\0")
    assert write_slot(slot.tags, slot.attributes, None) == raw


def test_an_unused_slot_has_nothing() -> None:
    assert read_slot(bytes(SLOT)).tags == {}


def test_a_slot_can_be_read_anywhere() -> None:
    data = write_slot({"a": "1"}, {}) + write_slot({"b": "2"}, {"c": "3"})
    assert read_slot(data, SLOT).tags == {"b": "2"}
    assert read_slot(memoryview(data), SLOT).attributes == {"c": "3"}


def test_every_truncation_is_noticed() -> None:
    raw = write_slot({"tag1": "v1", "t2": ""}, {"attr": "x"}, None)
    for size in range(len(raw)):
        with pytest.raises(TlogSlotError):
            read_slot(raw[:size])


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xff\xff\xff" + bytes(20),
        b"\x7f\xff\xff\xff" + bytes(20),
        b"\0\0\0\x01\x7f\xff\xff\xff" + bytes(20),
        b"\0\0\0\x01\0\0\0\x01\xff\0\0\0\0" + bytes(20),
    ],
)
def test_nothing_is_believed_of_a_length_that_does_not_fit(raw: bytes) -> None:
    with pytest.raises(TlogSlotError):
        read_slot(raw)


def test_what_does_not_fit_into_a_slot_is_refused() -> None:
    with pytest.raises(TooLargeError):
        write_slot({"t": "x" * SLOT}, {})
