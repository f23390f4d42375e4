"""Sections as checkpoints of version 1 had them: all files as rows, their sums not told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from receiver.metadata.log.freeze import thaw
from receiver.metadata.state.packed_file import whole
from receiver.metadata.state.ranges import Devices

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping

__all__ = ["in_version_1"]

_FEW = 3
"""Rows of a section, so that a test has several."""


def in_version_1(sections: Mapping[str, bytes]) -> dict[str, bytes]:
    """What a program of before would have written for the same state."""
    state = thaw({name: memoryview(content) for name, content in sections.items()}).state
    different: list[array[int]] = []

    def take_apart(value: object) -> object:
        assert isinstance(value, Devices)
        ids, base, offsets = value.parts()
        different.append(ids)
        return len(different) - 1, base, offsets.typecode, offsets.tobytes()

    meta: dict[str, Any] = msgspec.msgpack.decode(sections["meta"])
    del meta["listed"]
    encoder = msgspec.msgpack.Encoder(enc_hook=take_apart)
    rows = [whole(row) for row in state.files.values()]
    made = {
        name: content
        for name, content in sections.items()
        if not name.startswith(("packed-files.", "files.", "file-devices."))
    }
    for number, begin in enumerate(range(0, len(rows), _FEW)):
        made[f"files.{number}"] = encoder.encode(rows[begin : begin + _FEW])
    if different:
        made["file-devices.0"] = msgspec.msgpack.encode([each.tobytes() for each in different])
    return made | {"meta": msgspec.msgpack.encode(meta)}
