"""Which devices a token may write: patterns such as `root.siteA.**`, `root.*.d1`, `sensors:**`.

`*` stands for one node, `**` for one or more, as in Apache IoTDB. A table-model device is
`/<database>/<table>:<tags>`; its table, colon included, is its first node. A pattern without a
database covers the table in each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from common.errors import UsageError
from common.tsfile import parse_name, split_database, split_path

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Scope"]

_BETWEEN = "\0"


class Scope:
    """The devices that some patterns cover; without patterns: all."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Compile the patterns.

        Raises:
            UsageError: one of them has an empty node.
        """
        self.patterns = tuple(patterns)
        parts = [split_database(each) for each in self.patterns]
        self._regex = [(database, re.compile(_regex(each), re.DOTALL)) for database, each in parts]

    @classmethod
    def asked(cls, patterns: Iterable[str]) -> Scope:
        """Of patterns that somebody gives; those of a token that is there go on as they are.

        Raises:
            UsageError: one is wrong, or a path of the schema, which is the name of no device.
        """
        made = cls(patterns)
        for each in made.patterns:
            nodes = split_path(each)
            if nodes[0] == "root" and nodes[1:2] and nodes[1].startswith("/"):
                base = nodes[1]
                raise UsageError(
                    f"scope {each!a}: no device is called so; those of the tables of this "
                    f"database are {base}/**, those of one table {base}/TABLE:**"
                )
        return made

    def covers(self, device: str) -> bool:
        """Whether a device may be written."""
        if not self._regex:
            return True
        if _BETWEEN in device:  # would be taken for a border between nodes
            return False
        database, name = split_database(device)
        text = _BETWEEN.join(_nodes(name))
        return any(
            only in (None, database) and regex.fullmatch(text) for only, regex in self._regex
        )

    def reaches_below(self, path: str) -> bool:
        """Whether some device that is covered could be at this path of the schema, or below it."""
        if not self._regex:
            return True
        nodes = split_path(path)
        if nodes[1:2] and nodes[1].startswith("/"):  # where the schema has a database
            return any(database in (None, nodes[1][1:]) for database, _ in self._regex)
        return any(_reaches(split_path(each), nodes) for each in self.patterns)

    def first_outside(self, devices: Iterable[str]) -> str | None:
        """The first device that is not covered."""
        if not self._regex:
            return None
        return next((each for each in devices if not self.covers(each)), None)


def _reaches(pattern: list[str], nodes: list[str]) -> bool:
    for at, node in enumerate(nodes):
        if at == len(pattern):
            return False
        if pattern[at] == "**":
            return True
        if pattern[at] not in ("*", node):
            return False
    return True


def _nodes(device: str) -> list[str]:
    try:
        table, nodes = parse_name(device)
    except ValueError:
        return split_path(device)
    texts = ["null" if node is None else node for node in nodes]
    return [f"{texts[0]}:", *texts[1:]] if table else texts


def _regex(pattern: str) -> str:
    table, colon, rest = pattern.partition(":")
    nodes = [f"{table}:", *split_path(rest)] if colon and "." not in table else split_path(pattern)
    if not all(nodes):
        raise UsageError(f"scope {pattern!a}: empty node; expected such as root.siteA.**")
    wild = {"*": f"[^{_BETWEEN}]+", "**": ".+"}
    return _BETWEEN.join(wild.get(node) or re.escape(node) for node in nodes)
