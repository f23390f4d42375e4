"""The one text form of a device's name.

Tree model: the nodes of the path, joined by dots: ``root.sg.d1``. A node that is no plain
identifier (letters of ASCII, digits, ``_``, U+2E80 to U+9FFF), or reads as a number, stands in
back-ticks, its own back-ticks doubled, as in Apache IoTDB: ``root.sg.`a.b`.`1` ``. v3 stores the
path in one piece and v4 in segments, both in this or (old databases) in a laxer notation; the
same path gives the same text from each.

Table model: the table, a colon, and the tags joined by dots: ``sensors:plant1.null.`west 2` ``.
A null tag is the bare word ``null`` (the string "null" is quoted); trailing nulls are left out,
as they are in the file. No node of a tree name has a bare colon, so the two never meet. The
database is no part of it: a file does not know its own. Where tables of several databases meet,
the name stands behind its database: ``/plant/sensors:plant1`` (``in_database``).

Both forms are reversible (``parse_name``) and may hold any character a name may hold, a newline
included: who writes them into lines has to escape.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

__all__ = [
    "PATH_NODE",
    "bare_measurement",
    "device_name",
    "device_segments",
    "in_database",
    "is_table_id",
    "parse_name",
    "quote_node",
    "split_database",
    "split_path",
    "tree_name",
]

PATH_NODE: Final = re.compile(r"`((?:[^`]++|``)+)`(?=\.|\Z)|([^.]*)")
"""A node of a path, in quotes or bare."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9_]+")
_NUMBER: Final = re.compile(r"[0-9]+(?:[eE][0-9]+)?[fFdD]?|[0-9]+[lL]")
_PLAIN_PATH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+(?:\.[A-Za-z_][A-Za-z0-9_]*+)*")
"""Of ASCII, as nearly all are; see `_is_plain_path`."""
_NULL: Final = "null"
_EMPTY: Final = "``"


def in_database(name: str, database: str) -> str:
    """Name a table-model device for all databases: ``/<database>/<name>``.

    No other name begins with a slash: a node that has one is quoted.

    Args:
        name: ``<table>:<tags>``.
        database: without a slash; the storage group that the file lies in.
    """
    return f"/{database}/{name}"


def split_database(device: str) -> tuple[str | None, str]:
    """Undo ``in_database``; the database is None for a name without one."""
    if not device.startswith("/"):
        return None, device
    database, _, name = device[1:].partition("/")
    return database, name


def split_path(path: str) -> list[str]:
    """Split a path into its bare nodes; back-quoted ones may hold dots."""
    if "`" not in path:
        return path.split(".")
    nodes, pos = [], 0
    while True:
        found = PATH_NODE.match(path, pos)
        assert found is not None  # the second alternative matches anything
        quoted, bare = found.groups()
        if bare == _EMPTY:
            bare = ""
        nodes.append(bare if quoted is None else quoted.replace("``", "`"))
        pos = found.end() + 1
        if pos > len(path):
            return nodes


def bare_measurement(name: str) -> str:
    """The node of a path that a series of a tree has, by its name in a file.

    Databases since 0.13 write a name that is no plain identifier with its back-ticks, as those
    before and the Java library do not.
    """
    if not name.startswith("`"):
        return name
    nodes = split_path(name)
    return (nodes[0] or name) if len(nodes) == 1 else name


def quote_node(node: str) -> str:
    """Write a bare node as it stands in a path."""
    if _is_identifier(node) and not _NUMBER.fullmatch(node):
        return node
    return "`" + node.replace("`", "``") + "`"


def _is_identifier(node: str) -> bool:
    if node.isascii():
        return _IDENTIFIER.fullmatch(node) is not None
    return _wide()[0].fullmatch(node) is not None


def _is_plain_path(path: str) -> bool:
    if path.isascii():
        return _PLAIN_PATH.fullmatch(path) is not None
    return _wide()[1].fullmatch(path) is not None


@cache
def _wide() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """An identifier, and a plain path, of more than ASCII: compiling them takes 20 ms."""
    wide = r"\u2E80-\u9FFF"
    node = rf"[A-Za-z_{wide}][A-Za-z0-9_{wide}]*+"
    return re.compile(rf"[A-Za-z0-9_{wide}]+"), re.compile(rf"{node}(?:\.{node})*")


def tree_name(nodes: Sequence[str]) -> str:
    """Join bare nodes to the text form of a tree path."""
    return ".".join(map(quote_node, nodes))


def is_table_id(segments: tuple[str | None, ...], tables: frozenset[str]) -> bool:
    """Whether v4 segments name a device of the table model.

    They do when the file has a schema for their table, or a tag is null; never below ``root``
    (Java may write schemas for the prefixes of tree paths). A file of the tree model without
    ``root`` is taken for what it is.
    """
    first = segments[0] or ""
    if None in segments:
        return True
    return first in tables and first != "root" and not first.startswith("root.")


def device_name(segments: tuple[str | None, ...], *, table: bool) -> str:
    """The text form of a device.

    Args:
        segments: of v4; of v3 a tuple of the one path.
        table: whether it is of the table model.
    """
    if table:
        tags = (_quote_tag(tag) for tag in segments[1:])
        return f"{quote_node(segments[0] or '')}:{'.'.join(tags)}"
    path = ".".join(segment or "" for segment in segments)
    if _is_plain_path(path) and (
        len(segments) == 1 or path.count(".") == (segments[0] or "").count(".") + len(segments) - 1
    ):
        return path
    nodes = split_path(segments[0] or "")
    for segment in segments[1:]:
        whole = split_path(segment or "")
        nodes.append(whole[0] if len(whole) == 1 else segment or "")
    return tree_name(nodes)


def _quote_tag(tag: str | None) -> str:
    if tag is None:
        return _NULL
    return f"`{tag}`" if tag == _NULL else quote_node(tag)


def parse_name(name: str) -> tuple[bool, tuple[str | None, ...]]:
    """Take a text form apart: (is it of the table model, its bare nodes).

    Of a table device the nodes are the table and the tags.

    Raises:
        ValueError: ``name`` is not in the one text form.
    """
    table, colon, tags = _split_table(name)
    if not colon:
        nodes = split_path(name)
        if tree_name(nodes) != name:
            raise ValueError(f"{name!r} is not the text form of a device")
        return False, tuple(nodes)
    parts: list[str | None] = [table]
    if tags:
        bare = split_path(tags)
        # a bare null has four characters, a quoted one six
        parts += [
            None if raw == _NULL else node for raw, node in zip(_raw(tags), bare, strict=True)
        ]
    parsed = tuple(parts)
    if device_name(parsed, table=True) != name:
        raise ValueError(f"{name!r} is not the text form of a device")
    return True, parsed


def device_segments(name: str, version: int) -> tuple[str | None, ...]:
    """The segments that a file of a version has for a device of this name: undo ``device_name``.

    In version 4 up to three nodes of a path stand together, but the last; in 3 all of them.

    Raises:
        ValueError: ``name`` is not in the one text form, or version 3 has no such device.
    """
    table, nodes = parse_name(name)
    if table:
        if version == 3:
            raise ValueError(f"{name!r} is of a table, and version 3 has none")
        return nodes
    quoted = [quote_node(node or "") for node in nodes]
    together = len(quoted) if version == 3 else max(1, min(3, len(quoted) - 1))
    return (".".join(quoted[:together]), *quoted[together:])


def _split_table(name: str) -> tuple[str, str, str]:
    """Cut at the first bare colon: (bare table, colon or nothing, tags)."""
    if name.startswith("`"):
        found = re.match(r"`((?:[^`]++|``)*)`(?!`)(:?)", name)
        if not found:
            return "", "", ""
        return found[1].replace("``", "`"), found[2], name[found.end() :]
    table, colon, tags = name.partition(":")
    return ("", "", "") if "`" in table or "." in table else (table, colon, tags)


def _raw(path: str) -> list[str]:
    """The nodes of a path as written."""
    return [found.group() for found in re.finditer(r"`(?:[^`]++|``)*`(?!`)|[^.`]+", path)]
