"""Logs of one JSON object a line, whose last line may be torn.

A line is on the disk before anybody acts on it. Reading stops at the first line that is not one of
ours, and cuts the file there, so that what is appended next can be read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.durable import Tree

__all__ = ["append", "dump", "parse", "read"]

T = TypeVar("T")


def parse(data: bytes, kind: type[T]) -> tuple[list[T], int]:
    """The objects of the whole lines, and where the last good one ends."""
    found: list[T] = []
    decoder = msgspec.json.Decoder(kind)
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        try:
            found.append(decoder.decode(data[at:end]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            break
        at = end + 1
    return found, at


def read(tree: Tree, rel: str, kind: type[T], *, cut: bool = True) -> list[T]:
    """The objects of a log, nothing if it is not there; a torn end is cut off if `cut`."""
    if not tree.exists(rel):
        return []
    if not cut:
        return parse(tree.read(rel), kind)[0]
    with tree.append_file(rel) as file:  # flushes what a killed process left in memory alone
        data = tree.read(rel)
        found, good = parse(data, kind)
        if good != len(data):
            file.truncate(good)
    return found


def append(tree: Tree, rel: str, objects: Iterable[msgspec.Struct]) -> None:
    """Append objects, in one write that is on the disk when this returns."""
    with tree.append_file(rel) as file:
        file.append(dump(objects))


def dump(objects: Iterable[msgspec.Struct]) -> bytes:
    """The lines of objects; JSON has no raw newline inside."""
    return b"".join(msgspec.json.encode(each) + b"\n" for each in objects)
