"""What series and storage groups are estimated to take, for the memory limit.

The estimate is a sum over what lives now, so it comes out the same after any deletion, collection
or restart. History, free rows and the heads of the columns are not in it: history has its window,
and freed rows are used again. The figures are the columns' bytes, their slack included; a name is
counted for each node that has it, though it is kept once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.metadata.model import records
from receiver.metadata.model.paths import Nodes, parse_stored
from receiver.metadata.schema.tree_columns.props import props_text

if TYPE_CHECKING:
    from receiver.metadata.schema.looked_up.devicelookup import DeviceLookup
    from receiver.metadata.schema.looked_up.serieslookup import SeriesLookup
    from receiver.metadata.schema.tree_columns.schemacolumns import SchemaColumns

__all__ = ["ALIAS_BYTES", "INNER_BYTES", "LEAF_BYTES", "TAG_BYTES", "MemoryEstimate"]

LEAF_BYTES: Final = 56
"""A series: a row of 41 bytes with its slot, heat, and what grows ahead of need."""
INNER_BYTES: Final = 100
"""A storage group, a device, or a node above: a row, its place, its name's columns."""
ALIAS_BYTES: Final = 60
"""An alias: a row, and two links."""
TAG_BYTES: Final = 96
"""A tag of a series: its posting, its place in the order, its part of the series' place in the tag
log. Where values are shared by many series it takes some 60, a value of its own takes 150."""


class MemoryEstimate:
    """What the schema takes, and would take."""

    __slots__ = ("_columns", "_devices", "_series")

    def __init__(self, columns: SchemaColumns, series: SeriesLookup, devices: DeviceLookup) -> None:
        self._columns = columns
        self._series = series
        self._devices = devices

    @property
    def used(self) -> int:
        """Bytes that what lives now is estimated to take: a function of that content alone."""
        return self._columns.memory

    def cost_of(self, op: records.Op) -> int:
        """Bytes by which `used` grows with an operation, at least nearly, and at most those."""
        match op:
            case records.SeriesCreated():
                return self._cost_of_created(op)
            case records.SeriesLoaded():
                return sum(self._cost_of_loaded(device) for device in op.devices)
            case records.StorageGroupSet():
                return self._cost_of_nodes(parse_stored(op.path))
            case records.AliasSet(alias=str(alias)):
                return ALIAS_BYTES + _length(alias)
            case records.TagsSet():
                return self._cost_of_tags(op)
            case _:
                return 0

    def _cost_of_nodes(self, nodes: Nodes) -> int:
        cost, known = 0, len(nodes)
        while known > 1 and self._columns.tree.find_inner(nodes[:known]) < 0:
            known -= 1
            cost += INNER_BYTES + _length(nodes[known])
        return cost

    def _cost_of_created(self, op: records.SeriesCreated) -> int:
        cost = self._cost_of_nodes(parse_stored(op.device))
        cost += sum(LEAF_BYTES + _length(name) for name in op.names)
        cost += sum(ALIAS_BYTES + _length(alias) for alias in op.aliases or () if alias is not None)
        cost += sum(_tag_bytes(own) for own in op.tags or ())
        return cost + sum(_length(props_text(own)) for own in op.props or () if own)

    def _cost_of_loaded(self, device: records.LoadedDevice) -> int:
        nodes = parse_stored(device.device)
        missing = self._devices.missing(nodes, device.names)
        cost = sum(LEAF_BYTES + _length(device.names[i]) for i in missing)
        return cost + self._cost_of_nodes(nodes)

    def _cost_of_tags(self, op: records.TagsSet) -> int:
        row = self._series.find(parse_stored(op.path))
        before = self._columns.index.tags(row) if row >= 0 else {}
        return max(0, _tag_bytes(op.tags) - _tag_bytes(before))


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _tag_bytes(tags: dict[str, str]) -> int:
    return sum(TAG_BYTES + _length(value) for value in tags.values())
