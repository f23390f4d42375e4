"""The tree of storage groups, devices and series, with their history, in columns.

A million series are a million rows of a few arrays, not a million objects. Everything that a
question asks for has a time: `at=None` is the newest commit.

Rooms: `tree_columns` those arrays, `looked_up` questions to them.
"""

from receiver.metadata.schema.looked_up.schemarows import (
    DeviceRow,
    NodeKind,
    SeriesRow,
    StorageGroupRow,
)
from receiver.metadata.schema.schema import Schema
from receiver.metadata.schema.tree_columns.frozen import FrozenSchema, room

__all__ = [
    "DeviceRow",
    "FrozenSchema",
    "NodeKind",
    "Schema",
    "SeriesRow",
    "StorageGroupRow",
    "room",
]
