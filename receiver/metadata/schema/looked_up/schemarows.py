"""Rows as a question gets them: plain values, valid for ever."""

from __future__ import annotations

from typing import Literal, NamedTuple

from receiver.metadata.model.paths import Nodes, format_path

__all__ = ["DeviceRow", "NodeKind", "SeriesRow", "StorageGroupRow"]

NodeKind = Literal["root", "internal", "storage_group", "leaf", "alias"]


class SeriesRow(NamedTuple):
    """A time series.

    Attributes:
        row: where the tree keeps it, until history has collected it.
        nodes: of its path.
        alias: its other name in the device.
        storage_group: nodes of the storage group it lies in.
        device: nodes of its device.
        aligned: whether the device's series share one time column.
        type: TSDataType code.
        encoding: TSEncoding code.
        compression: CompressionType code.
        created: commit that made it.
        deleted: commit that deleted it, 0 while it lives (as of the time asked for, always 0).
        tags_at: where its tags and attributes are in the tag log, -1 for none.
        heat: newest timestamp loaded, None before the first.
        props: what its encoder was told.
        path: in the stored form.
    """

    row: int
    nodes: Nodes
    alias: str | None
    storage_group: Nodes
    device: Nodes
    aligned: bool
    type: int
    encoding: int
    compression: int
    created: int
    deleted: int
    tags_at: int
    heat: int | None
    props: dict[str, str]
    path: str


class StorageGroupRow(NamedTuple):
    """A storage group.

    Attributes:
        nodes: of its path.
        ttl: in milliseconds, None for ever.
        created: commit that made it.
        changed: newest commit that made it or set its TTL.
    """

    nodes: Nodes
    ttl: int | None
    created: int
    changed: int

    @property
    def path(self) -> str:
        """Its path in the stored form."""
        return format_path(self.nodes)


class DeviceRow(NamedTuple):
    """A device: a node that has series.

    Attributes:
        row: where the tree keeps it.
        nodes: of its path.
        storage_group: nodes of the storage group it lies in.
        aligned: whether its series share one time column.
        series: how many it has.
        created: commit that made the node.
    """

    row: int
    nodes: Nodes
    storage_group: Nodes
    aligned: bool
    series: int
    created: int

    @property
    def path(self) -> str:
        """Its path in the stored form."""
        return format_path(self.nodes)
