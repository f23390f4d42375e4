r"""The tree of a schema as text, as Apache IoTDB's snapshots and `mtree dump` have it, read back.

A line for each node, the children before their parent:

    0,<name>,<children>
    1,<name>,<TTL>,<children>                   a storage group
    2,<name>,<alias>,<type>,<encoding>,<compression>,<k:v;k:v;>,<tlog offset>,<children>

What comes out are lines of the text log (`mlog.txt`) that make the tree. A name that no such line
can hold makes a line that is no operation, so that whoever reads the log names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from common.errors import DamagedError

__all__ = ["Codes", "TreeNode", "plain_line", "read_tree", "series_line", "tree_log"]

Codes = tuple[int, int, int]
"""Type, encoding and compression, as numbers of the TsFile format."""

_FOREVER: Final = (1 << 63) - 1
_NAME: Final = r"(`(?:[^`]|``)*`|.*?)"
_NUMBER: Final = r"(\d{1,10})"
_INNER: Final = re.compile(rf"0,(.*),{_NUMBER}")
_GROUP: Final = re.compile(rf"1,(.*),(-?\d{{1,19}}),{_NUMBER}")
_SERIES: Final = re.compile(
    rf"2,{_NAME},(`(?:[^`]|``)*`|[^,]*),(\d{{1,3}}),(\d{{1,3}}),(\d{{1,3}}),(.*),(-?\d{{0,19}}),{_NUMBER}"
)


@dataclass(slots=True)
class TreeNode:
    """A node of the tree.

    Attributes:
        name: as it stands in a path.
        children: how many of the nodes before are below it.
        ttl: of a storage group, None for other nodes.
        series: alias, codes, properties and offset in the tlog, of a series.
        below: its children, once they are known.
    """

    name: str
    children: int
    ttl: int | None = None
    series: tuple[str, Codes, Mapping[str, str], int] | None = None
    below: list[TreeNode] = field(default_factory=list)


def read_tree(data: bytes, name: str) -> Iterator[TreeNode]:
    """The nodes of a text, in its order.

    Args:
        data: the text.
        name: of the file, for messages.

    Raises:
        DamagedError: a line is no node, or the last one has no end.
    """
    at = 0
    for line in data.split(b"\n"):
        if at + len(line) == len(data) and line:
            raise _damaged(name, at, "it ends in the middle of a line")
        try:
            text = line.decode().removesuffix("\r")
            node = _node(text) if text else None
        except ValueError as error:
            raise _damaged(name, at, str(error)) from error
        if node is not None:
            yield node
        at += len(line) + 1


def _node(text: str) -> TreeNode:
    if found := _INNER.fullmatch(text):
        return TreeNode(found[1], int(found[2]))
    if found := _GROUP.fullmatch(text):
        return TreeNode(found[1], int(found[3]), ttl=int(found[2]))
    found = _SERIES.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!a} is no node of a tree")
    alias = found[2]
    if alias.startswith("`") and alias.endswith("`") and len(alias) > 1:
        alias = alias[1:-1].replace("``", "`")
    pairs = (each.partition(":") for each in found[6].split(";") if each)
    props = {key: value for key, _, value in pairs}
    codes = int(found[3]), int(found[4]), int(found[5])
    offset = int(found[7]) if found[7].lstrip("-") else -1
    return TreeNode(found[1], int(found[8]), series=(alias, codes, props, offset))


def tree_log(nodes: Iterable[TreeNode], name: str) -> Iterator[str]:
    """Lines of a text log that make the tree, each with its end.

    Args:
        nodes: of the tree, children before their parent.
        name: of the file, for messages.

    Raises:
        DamagedError: they are no whole tree.
    """
    grown: list[TreeNode] = []
    for node in nodes:
        if node.children > len(grown):
            raise DamagedError(
                f"{name}: {node.name!a} has {node.children} children that are not there"
            )
        begin = len(grown) - node.children
        node.below = grown[begin:]
        grown[begin:] = [node]
    if not grown:
        return
    if len(grown) > 1 or grown[0].name != "root":
        raise DamagedError(f"{name}: it is no whole tree; the last node is no root of all others")
    waiting = [("root", grown[0])]
    while waiting:
        path, node = waiting.pop()
        yield from (f"{line}\n" for line in _lines(path, node))
        waiting += [(f"{path}.{each.name}", each) for each in reversed(node.below)]


def _lines(path: str, node: TreeNode) -> Iterator[str]:
    if node.series is not None:
        yield series_line(path, node.series[1], node.series[2], node.series[0], node.series[3])
    elif node.ttl is not None:
        yield plain_line("2", path)
        if 0 < node.ttl < _FOREVER:
            yield plain_line("10", path, str(node.ttl))


def series_line(path: str, codes: Codes, props: Mapping[str, str], alias: str, offset: int) -> str:
    """The line of a text log that makes a series."""
    texts = (alias, *props, *props.values())
    if any("," in each or "&" in each for each in texts) or any("=" in each for each in props):
        return _refusal(path)
    pairs = "&".join(f"{key}={value}" for key, value in props.items())
    numbers = ",".join(map(str, codes))
    return plain_line("0", path, numbers, pairs, alias, "" if offset < 0 else str(offset))


def plain_line(*fields: str) -> str:
    """A line of a text log, without its end; what no line can hold makes one that is refused."""
    line = ",".join(fields)
    return _refusal(fields[1]) if any(each in line for each in "\n\r\0") else line


def _refusal(path: str) -> str:
    return f"the text log has no line for the names of {path!a}"


def _damaged(name: str, at: int, why: str) -> DamagedError:
    return DamagedError(f"{name}, byte {at}: {why}")
