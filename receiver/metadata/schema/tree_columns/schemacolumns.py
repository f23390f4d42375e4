"""The columns of the schema together, and their checkpoint."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Final

from common.errors import DamagedError
from receiver.metadata.schema.tree_columns.ended import Ended
from receiver.metadata.schema.tree_columns.growing_columns import Section, Versions
from receiver.metadata.schema.tree_columns.heat import Heat
from receiver.metadata.schema.tree_columns.node_tree import NodeTree
from receiver.metadata.schema.tree_columns.props import Props
from receiver.metadata.schema.tree_columns.tagindex import TagIndex

__all__ = ["SchemaColumns"]

_VERSION: Final = 1
_TOTALS: Final = ("series_count", "device_count", "storage_group_count", "memory")


class SchemaColumns:
    """All that the schema keeps.

    Attributes:
        tree: nodes.
        index: tag key -> value -> series.
        offsets: where tags and attributes of a leaf's row are in the tag log.
        ttls: TTL of a storage group, by its place among inner nodes; -1 for ever.
        heats: newest time loaded, by leaf's row.
        ended: what history may collect, in order.
        props: what encoders were told, by leaf's row.
        series_count: series that live now.
        device_count: devices that live now.
        storage_group_count: storage groups that live now.
        memory: bytes that what lives now is estimated to take.
        unnamed: things that were dropped since unused names were looked for.
    """

    __slots__ = ("ended", "heats", "index", "offsets", "props", "tree", "ttls", "unnamed", *_TOTALS)

    def __init__(self) -> None:
        self.tree = NodeTree()
        self.index = TagIndex(self.tree.names)
        self.offsets = Versions()
        self.ttls = Versions()
        self.heats = Heat(self.tree)
        self.ended = Ended()
        self.props = Props(self.tree.names)
        self.series_count = 0
        self.device_count = 0
        self.storage_group_count = 0
        self.memory = 0
        self.unnamed = 0

    def has_ended(self, ts: int) -> bool:
        """Whether something was deleted in a commit, the newest one."""
        return bool(self.ended.ts) and self.ended.ts[-1] == ts

    def sections(self) -> list[Section]:
        """The columns by the names of their sections."""
        head = {
            "version": _VERSION,
            "byteorder": sys.byteorder,
            "unnamed": self.unnamed,
            "totals": [getattr(self, name) for name in _TOTALS],
        }
        return [
            ("schema.head", json.dumps(head).encode()),
            *self.tree.sections(),
            *self.index.sections(),
            *self.offsets.sections("offsets"),
            *self.ttls.sections("ttls"),
            *self.heats.sections(),
            *self.ended.sections(),
            *self.props.sections(),
        ]

    @classmethod
    def thaw(cls, sections: Mapping[str, memoryview | bytes]) -> SchemaColumns:
        """What was frozen.

        Raises:
            DamagedError: the sections do not fit together.
        """
        made = cls()
        try:
            head = json.loads(bytes(sections["schema.head"]))
            version, order = head["version"], head["byteorder"]
            for name, value in zip(_TOTALS, head["totals"], strict=True):
                setattr(made, name, int(value))
            made.unnamed = int(head["unnamed"])
        except (KeyError, ValueError, TypeError) as error:
            raise DamagedError(f"the schema's section 'schema.head' is damaged: {error}") from error
        if version != _VERSION:
            raise DamagedError(f"the schema is of version {version}, expected {_VERSION}")
        swap = order != sys.byteorder
        made.tree = NodeTree.thaw(sections, swap=swap)
        made.index = TagIndex.thaw(made.tree.names, sections, swap=swap)
        made.offsets = Versions.thaw("offsets", sections, swap=swap)
        made.ttls = Versions.thaw("ttls", sections, swap=swap)
        made.heats = Heat.thaw(made.tree, sections, swap=swap)
        made.ended = Ended.thaw(sections, swap=swap)
        made.props = Props.thaw(made.tree.names, sections, swap=swap)
        return made
