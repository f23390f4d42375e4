"""The tree of storage groups, devices and series, with their history, in columns.

A million series are a million rows of a few arrays, not a million objects. Everything that a
question asks for has a time: `at=None` is the newest commit.
"""

from receiver.metadata.schema.frozen import FrozenSchema, room
from receiver.metadata.schema.schema import Schema
from receiver.metadata.schema.schemarows import DeviceRow, NodeKind, SeriesRow, StorageGroupRow

__all__ = [
    "DeviceRow",
    "FrozenSchema",
    "NodeKind",
    "Schema",
    "SeriesRow",
    "StorageGroupRow",
    "room",
]
