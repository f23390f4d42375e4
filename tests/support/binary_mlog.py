"""Frames of binary schema logs, as Apache IoTDB writes them; of regions by `region_frame`."""

from __future__ import annotations

import struct
import zlib

__all__ = [
    "aligned", "created", "deleted", "frame", "group_node", "inner_node", "moved_tags",
    "region_frame", "renamed", "series_node", "storage_group", "ttl_set", "unchecked",
]  # fmt: skip

_INDEX = bytes(8)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body + struct.pack(">q", zlib.crc32(body))


def _text(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">i", -1)
    return struct.pack(">i", len(text.encode())) + text.encode()


def _pairs(pairs: dict[str, str]) -> bytes:
    texts = b"".join(_text(key) + _text(value) for key, value in pairs.items())
    return struct.pack(">i", len(pairs)) + texts


def storage_group(path: str) -> bytes:
    return frame(b"\x03" + _text(path) + _INDEX)


def created(
    path: str,
    codes: tuple[int, int, int] = (3, 8, 1),
    *,
    alias: str = "",
    props: dict[str, str] | None = None,
    tags: dict[str, str] | None = None,
    offset: int = -1,
) -> bytes:
    parts = [b"\x04", _text(path), bytes(codes), struct.pack(">q", offset)]
    parts.append(b"\x01" + _text(alias) if alias else b"\x00")
    parts += [b"\x01" + _pairs(each) if each else b"\x00" for each in (props, tags, None)]
    return frame(b"".join(parts) + _INDEX)


def ttl_set(path: str, ttl: int) -> bytes:
    return frame(b"\x05" + struct.pack(">q", ttl) + _text(path) + _INDEX)


def deleted(*paths: str, group: bool = False) -> bytes:
    kind = b"\x13" if group else b"\x15"
    return frame(kind + struct.pack(">i", len(paths)) + b"".join(map(_text, paths)) + _INDEX)


def moved_tags(path: str, offset: int) -> bytes:
    return frame(b"\x1c" + _text(path) + struct.pack(">q", offset))


def renamed(path: str, alias: str | None) -> bytes:
    return frame(b"\x1d" + _text(path) + _text(alias))


def inner_node(name: str, children: int) -> bytes:
    return frame(b"\x1e" + _text(name) + struct.pack(">i", children) + _INDEX)


def series_node(name: str, alias: str | None, offset: int) -> bytes:
    schema = _text(name) + bytes((3, 8, 1)) + _pairs({})
    head = b"\x1f" + _text(name) + _text(alias) + struct.pack(">qi", offset, 0)
    return frame(head + schema + _INDEX)


def group_node(name: str, ttl: int, children: int) -> bytes:
    return frame(b"\x20" + _text(name) + struct.pack(">qi", ttl, children) + _INDEX)


def region_frame(body: bytes) -> bytes:
    """A frame of a region's log from 1.0 on: zeros for its checksum."""
    return struct.pack(">i", len(body)) + body + bytes(8)


def unchecked(checked: bytes) -> bytes:
    """A frame with a checksum, as a region has it."""
    return region_frame(checked[4:-8])


def aligned(
    device: str,
    names: list[str],
    codes: tuple[int, int, int] = (3, 8, 1),
    *,
    aliases: list[str | None] | None = None,
    offset: int = -1,
) -> bytes:
    parts = [b"\x29", struct.pack(">i", -1), _text(device), struct.pack(">i", len(names))]
    parts += map(_text, names)
    parts += [bytes([code]) * len(names) for code in codes]
    parts.append(struct.pack(">q", offset) * len(names))
    parts.append(b"\x00" if aliases is None else b"\x01" + b"".join(map(_text, aliases)))
    return region_frame(b"".join(parts) + b"\x00\x00" + _INDEX)
