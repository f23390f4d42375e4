"""Walking a schema: tables (`msgspec.Struct`) in each other or in arrays, leaves at the end."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import FieldInfo

from common.config.kinds import ValueKind, kind_of

__all__ = [
    "ArrayNode",
    "LeafNode",
    "SettingNode",
    "TableNode",
    "child",
    "fields",
    "join_key",
    "keys",
    "split_key",
    "suggestion",
]

_SEGMENT = re.compile(r"([^\[\].]+)((?:\[[0-9]{1,4}\])*)")
_INDEX = re.compile(r"\[([0-9]+)\]")


class TableNode(msgspec.Struct, frozen=True):
    """A table."""

    schema: type[msgspec.Struct]


class ArrayNode(msgspec.Struct, frozen=True):
    """An array of tables."""

    schema: type[msgspec.Struct]


class LeafNode(msgspec.Struct, frozen=True):
    """A value."""

    kind: ValueKind


SettingNode = TableNode | ArrayNode | LeafNode


def fields(schema: type[msgspec.Struct]) -> Iterator[tuple[FieldInfo, SettingNode]]:
    """The fields of a table and what each of them is; `FieldInfo.encode_name` is the key."""
    for field in msgspec.structs.fields(schema):
        yield field, _node(field.type)


def _node(annotation: Any) -> SettingNode:
    if _is_table(annotation):
        return TableNode(annotation)
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is tuple and _is_table(arguments[0]):
        return ArrayNode(arguments[0])
    return LeafNode(kind_of(annotation))


def _is_table(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def child(node: SettingNode, segment: str | int) -> SettingNode | None:
    """What stands below a node under a key or an index; None where there is no such thing."""
    if isinstance(node, ArrayNode) and isinstance(segment, int):
        return TableNode(node.schema)
    if isinstance(node, TableNode) and isinstance(segment, str):
        for field, below in fields(node.schema):
            if field.encode_name == segment:
                return below
    return None


def split_key(key: str) -> list[str | int]:
    """``receiver[0].url`` -> ``["receiver", 0, "url"]``; a key of another form stays whole."""
    segments: list[str | int] = []
    for part in key.split("."):
        found = _SEGMENT.fullmatch(part)
        if not found:
            return [key]
        segments.append(found[1])
        segments.extend(int(index) for index in _INDEX.findall(found[2]))
    return segments


def join_key(parent: str, segment: str | int) -> str:
    """The reverse of `split_key`, a segment at a time."""
    if isinstance(segment, int):
        return f"{parent}[{segment}]"
    return f"{parent}.{segment}" if parent else segment


def keys(schema: type[msgspec.Struct], parent: str = "") -> Iterator[str]:
    """Every key that a file may have, arrays of tables as ``receiver[].url``."""
    for field, node in fields(schema):
        key = join_key(parent, field.encode_name)
        if isinstance(node, LeafNode):
            yield key
        else:
            suffix = "[]" if isinstance(node, ArrayNode) else ""
            yield from keys(node.schema, key + suffix)


def suggestion(root: type[msgspec.Struct], parent: str, wrong: str) -> str:
    """What an unknown key may have meant: a slip of the pen, or the right key in another table."""
    table = re.sub(r"\[[0-9]+\]", "[]", parent)
    known = list(keys(root))
    siblings = {_head(key, table) for key in known if key.startswith(table)} - {""}
    tidy = wrong.lower().replace("-", "_")
    near = difflib.get_close_matches(tidy, sorted(siblings), n=1)
    if near:
        return f'did you mean "{join_key(parent, near[0])}"?'
    last = {key.rpartition(".")[2]: key for key in reversed(known)}
    moved = difflib.get_close_matches(tidy, sorted(last), n=1, cutoff=0.75)
    if moved:
        meant = last[moved[0]]
        if parent and "." not in meant:
            return f'did you mean "{meant}"? It belongs above the first [table] of the file'
        return f'did you mean "{meant}"?'
    return "known here: " + ", ".join(sorted(siblings))


def _head(key: str, table: str) -> str:
    """The next segment of a key below a table; empty where the key is elsewhere."""
    rest = key[len(table) :]
    if table and not rest.startswith("."):
        return ""
    return re.split(r"[.\[]", rest.lstrip("."), maxsplit=1)[0]
