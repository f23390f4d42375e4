r"""The tree with time, as the state applies commits to it and questions look at it.

Every method is called with the engine's lock held (`Engine.reading`, or the committer), and none
keeps it for long: what may be large is asked for in pages (`after`, `limit`). What is applied was
validated before; nothing here refuses. The same operations give the same answers, whatever was
asked, collected or restarted between them.

    schema = Schema()
    schema.changes.set_storage_group(("root", "turbine"), ts=100)
    schema.changes.create_series(("root", "turbine", "d1"), ["s1"], b"\3", b"\2", b"\1", ts=200)
    row = schema.series.find(("root", "turbine", "d1", "s1"), at=250)
    print(schema.series.describe(row, at=250))

Below it: `tree` (nodes in columns, with `names`, `hashindex` and `order`), `tagindex`, `heat`,
`props`, `columns` (growing arrays, values with versions) and `ended` (what history may collect) are
the columns; `schemacolumns` is all of them together. `walk` and `matching` find what a pattern
means; whole questions are answered by `receiver.metadata.query`.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping

from receiver.metadata.schema.changes import TreeChanges
from receiver.metadata.schema.collector import Collector
from receiver.metadata.schema.looked_up.devicelookup import DeviceLookup
from receiver.metadata.schema.looked_up.nodelookup import NodeLookup, StorageGroupLookup
from receiver.metadata.schema.looked_up.serieslookup import SeriesLookup
from receiver.metadata.schema.memory import MemoryEstimate
from receiver.metadata.schema.tree_columns.frozen import FrozenSchema, size_of
from receiver.metadata.schema.tree_columns.schemacolumns import SchemaColumns

__all__ = ["Schema"]


class Schema:
    """Storage groups, devices, series, aliases, TTL, tags and heat, each as of any commit.

    Attributes:
        columns: all that is kept, and how much lives now.
        tree: of these, the nodes.
        index: of these, the tags.
        changes: what commits do.
        series: questions about series.
        devices: questions about devices.
        groups: questions about storage groups.
        nodes: questions about nodes of any kind.
        memory: what it is estimated to take.
        collector: lets go of what no question can reach any more.
    """

    def __init__(self, columns: SchemaColumns | None = None) -> None:
        self.columns = columns = SchemaColumns() if columns is None else columns
        self.tree = columns.tree
        self.index = columns.index
        self.changes = TreeChanges(columns)
        self.series = SeriesLookup(columns)
        self.devices = DeviceLookup(columns.tree)
        self.groups = StorageGroupLookup(columns)
        self.nodes = NodeLookup(columns.tree)
        self.memory = MemoryEstimate(columns, self.series, self.devices)
        self.collector = Collector(columns)

    def frozen_bytes(self) -> int:
        """What a frozen copy takes now: for the `room` that `freeze` needs."""
        return sum(size_of(part) for _, part in self.columns.sections())

    def freeze(self, room: bytearray | mmap.mmap | None = None) -> FrozenSchema:
        """A copy of all that is here; `FrozenSchema.sections` gives it out later.

        Args:
            room: for the copy (`receiver.metadata.schema.room`); what does not fit into it gets
                memory of its own, which takes two or three times as long.
        """
        return FrozenSchema.copy(self.columns.sections(), bytearray() if room is None else room)

    @classmethod
    def thaw(cls, sections: Mapping[str, memoryview | bytes]) -> Schema:
        """What was frozen.

        Raises:
            DamagedError: the sections do not fit together.
        """
        return cls(SchemaColumns.thaw(sections))
