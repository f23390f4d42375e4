"""Frames of a binary schema log, as Apache IoTDB 0.12 writes them."""

from __future__ import annotations

import struct
import zlib

__all__ = [
    "created", "deleted", "frame", "group_node", "inner_node", "moved_tags", "renamed",
    "series_node", "storage_group", "ttl_set",
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
