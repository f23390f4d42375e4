"""What a deletion says: which series of which devices it is of, and which times.

Tree model: a path pattern. A node of it is a name, ``*`` (one node), ``**`` (one or more), or a
name that begins or ends with ``*`` (``d*``, ``*_raw``); a node in back-ticks is never a wildcard.
Table model: a table, conditions on its tags, and columns (none named: all, the time included).

Source: apache/iotdb, ``PartialPath.matchFullPath``, ``PathPatternUtil``, ``TableDeletionEntry``,
``DeletionPredicate``, ``IDPredicate`` (later ``TagPredicate``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final, TypeAlias

from common.tsfile import Device, parse_name
from common.tsfile.device_names import PATH_NODE, bare_measurement

__all__ = [
    "EVERY_CHUNK",
    "AllOf",
    "AnyDevice",
    "Deletion",
    "DeviceIn",
    "NamePattern",
    "PathPattern",
    "TableSeries",
    "TagIs",
    "TagNotNull",
    "TagPredicate",
    "Tags",
    "names_of",
    "without_trailing_nulls",
]

EVERY_CHUNK: Final = 2**63 - 1
"""The file offset of a deletion that holds for all chunks of its file."""

Tags: TypeAlias = tuple[str | None, ...]
"""Segments of a table device: the table, then its tags; None is a null tag."""

_ANY: Final = "*"


@dataclasses.dataclass(frozen=True, slots=True)
class NamePattern:
    """What a device is called, as deletions see it.

    Attributes:
        is_table: whether it is of the table model.
        nodes: bare; of a table its name and tags, trailing nulls left out.
    """

    is_table: bool
    nodes: Tags


def names_of(device: Device) -> NamePattern:
    """The names of a device of a file."""
    if device.is_table:
        return NamePattern(True, without_trailing_nulls(device.segments))
    return NamePattern(False, parse_name(device.name)[1])


def without_trailing_nulls(tags: Tags) -> Tags:
    """Leave out the nulls at the end, as a database does before it compares devices."""
    end = len(tags)
    while end > 1 and tags[end - 1] is None:
        end -= 1
    return tags[:end]


class PathPattern:
    """A path of a tree, with or without wildcards."""

    __slots__ = ("_nodes", "prefix", "text")

    def __init__(self, text: str, *, prefix: bool = False) -> None:
        """Take a pattern in the notation of Apache IoTDB.

        Args:
            text: the pattern.
            prefix: whether it also names all that lies below what it names, as in 0.12.
        """
        self.text = text
        self.prefix = prefix
        self._nodes = _pattern_nodes(text)

    def matches(self, nodes: Sequence[str | None]) -> bool:
        """Whether a path of bare nodes is one that the pattern names, from end to end."""
        # All positions in the pattern that the path so far can have come to: the work is bounded
        # by path times pattern, whatever row of stars a hostile file has.
        reached = {0}
        for node in nodes:
            reached = {after for at in reached for after in self._steps(at, node or "")}
            if not reached:
                return False
            if self.prefix and len(self._nodes) in reached:
                return True
        return len(self._nodes) in reached

    @property
    def device(self) -> tuple[str, ...] | None:
        """The only device whose series it names; None if there may be others."""
        if self.prefix or any(len(node) > 1 for node in self._nodes[:-1]):
            return None
        if self._nodes[-1] == _MANY_NODE:
            return None
        return tuple(node[0] for node in self._nodes[:-1])

    def concerns(self, names: NamePattern) -> bool:
        """Whether a device has, or could have, a series that the pattern names."""
        if names.is_table:
            return False
        if self.prefix:
            return True
        reached = {0}
        for node in names.nodes:
            reached = {after for at in reached for after in self._steps(at, node or "")}
        last = len(self._nodes)
        return last - 1 in reached or (last in reached and self._nodes[-1] == _MANY_NODE)

    def matches_series(self, names: NamePattern, measurement: str) -> bool:
        """Whether the pattern names this series; ``""`` only if it names all of the device."""
        if names.is_table:
            return False
        return self.matches((*names.nodes, bare_measurement(measurement)))

    def _steps(self, at: int, node: str) -> tuple[int, ...]:
        stay = (at,) if at and self._nodes[at - 1] == _MANY_NODE else ()
        fits = at < len(self._nodes) and _node_matches(self._nodes[at], node)
        return (*stay, at + 1) if fits else stay

    def __repr__(self) -> str:
        return f"PathPattern({self.text!r}, prefix={self.prefix})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PathPattern):
            return NotImplemented
        return (other.text, other.prefix) == (self.text, self.prefix)

    def __hash__(self) -> int:
        return hash((self.text, self.prefix))


_PatternNode: TypeAlias = tuple[str, ...]
"""What stands between the stars of a node; a name without any is a single part."""
_MANY_NODE: Final = ("", "", "")


def _pattern_nodes(text: str) -> tuple[_PatternNode, ...]:
    nodes: list[_PatternNode] = []
    pos = 0
    while pos <= len(text):
        found = PATH_NODE.match(text, pos)
        assert found is not None  # the second alternative matches anything
        quoted, bare = found.groups()
        if quoted is not None:
            nodes.append((quoted.replace("``", "`"),))
        elif bare.startswith(_ANY) or bare.endswith(_ANY):
            nodes.append(tuple(bare.split(_ANY)))
        else:
            nodes.append((bare,))
        pos = found.end() + 1
    return tuple(nodes)


def _node_matches(parts: _PatternNode, node: str) -> bool:
    if len(parts) == 1:
        return parts[0] == node
    first, *middle, last = parts
    pos, end = len(first), len(node) - len(last)
    if pos > end or not node.startswith(first) or not node.endswith(last):
        return False
    for part in middle:
        found = node.find(part, pos, end)
        if found < 0:
            return False
        pos = found + len(part)
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class AnyDevice:
    """No condition on the tags."""

    def matches(self, device: Tags) -> bool:
        """Whether the deletion is of this device of its table."""
        return True


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceIn:
    """One of these devices, exactly."""

    devices: frozenset[Tags]

    def matches(self, device: Tags) -> bool:
        """Whether the deletion is of this device of its table."""
        return device in self.devices


@dataclasses.dataclass(frozen=True, slots=True)
class TagIs:
    """A segment has this value; None asks for a null. Segment 0 is the table."""

    segment: int
    value: str | None

    def matches(self, device: Tags) -> bool:
        """Whether the deletion is of this device of its table."""
        return _segment(device, self.segment) == self.value


@dataclasses.dataclass(frozen=True, slots=True)
class TagNotNull:
    """A segment has any value. Segment 0 is the table."""

    segment: int

    def matches(self, device: Tags) -> bool:
        """Whether the deletion is of this device of its table."""
        return _segment(device, self.segment) is not None


@dataclasses.dataclass(frozen=True, slots=True)
class AllOf:
    """Every one of these conditions."""

    conditions: tuple[TagPredicate, ...]

    def matches(self, device: Tags) -> bool:
        """Whether the deletion is of this device of its table."""
        return all(condition.matches(device) for condition in self.conditions)


TagPredicate: TypeAlias = AnyDevice | DeviceIn | TagIs | TagNotNull | AllOf


def _segment(device: Tags, at: int) -> str | None:
    return device[at] if at < len(device) else None


@dataclasses.dataclass(frozen=True, slots=True)
class TableSeries:
    """Columns of devices of a table.

    Attributes:
        table: its name.
        tags: which of its devices.
        columns: of them; none named: all, the time included.
    """

    table: str
    tags: TagPredicate
    columns: frozenset[str]

    def concerns(self, names: NamePattern) -> bool:
        """Whether the deletion is of this device."""
        return names.is_table and names.nodes[0] == self.table and self.tags.matches(names.nodes)

    def matches_series(self, names: NamePattern, measurement: str) -> bool:
        """Whether the deletion is of this column; ``""`` only if it is of all of the device."""
        return self.concerns(names) and (not self.columns or measurement in self.columns)


@dataclasses.dataclass(frozen=True, slots=True)
class Deletion:
    """Times of series that were deleted.

    Attributes:
        series: which.
        start: first time deleted, in the file's unit.
        end: last time deleted.
        before: only chunks whose header is in front of this file offset; ``EVERY_CHUNK`` for all.
    """

    series: PathPattern | TableSeries
    start: int
    end: int
    before: int = EVERY_CHUNK
