"""What the operations of the schema do to its tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_pattern, parse_stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.model.paths import Nodes
    from receiver.metadata.schema import Schema
    from receiver.metadata.state.tables import Appliers

__all__ = ["SchemaTable"]


class SchemaTable:
    """Takes operations apart for `Schema`, which knows nothing of records.

    Attributes:
        schema: the tree.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def operations(self) -> Appliers:
        """What it does with operations that have no place in the tlog given."""
        return {
            records.StorageGroupSet: self._storage_group_set,
            records.StorageGroupDeleted: self._storage_group_deleted,
            records.TtlSet: self._ttl_set,
            records.SeriesCreated: self.series_created,
            records.SeriesDeleted: self._series_deleted,
            records.AliasSet: self._alias_set,
            records.TagsSet: self.tags_set,
            records.SeriesLoaded: self._series_loaded,
        }

    def series_created(
        self, op: records.SeriesCreated, ts: int, offsets: Sequence[int] | None = None
    ) -> None:
        """New series; `offsets` of each in the tlog, -1 for none."""
        self.schema.changes.create_series(
            parse_stored(op.device),
            op.names,
            op.types,
            op.encodings,
            op.compressions,
            ts,
            aligned=op.aligned,
            aliases=op.aliases,
            tags=op.tags,
            props=op.props,
            offsets=offsets,
        )

    def tags_set(self, op: records.TagsSet, ts: int, offset: int = -1) -> None:
        """Other tags and attributes; `offset` of them in the tlog."""
        self.schema.changes.set_tags(parse_stored(op.path), op.tags, offset, ts)

    def _storage_group_set(self, op: records.StorageGroupSet, ts: int) -> None:
        nodes = parse_stored(op.path)
        if op.if_missing and self.schema.groups.of(nodes) is not None:
            return
        self.schema.changes.set_storage_group(nodes, ts)

    def _storage_group_deleted(self, op: records.StorageGroupDeleted, ts: int) -> None:
        self.schema.changes.delete_storage_group(parse_stored(op.path), ts)

    def _ttl_set(self, op: records.TtlSet, ts: int) -> None:
        self.schema.changes.set_ttl(parse_stored(op.path), op.ttl, ts)

    def _series_deleted(self, op: records.SeriesDeleted, ts: int) -> None:
        self.schema.changes.delete_series(parse_pattern(op.pattern), ts)

    def paths_deleted(self, paths: Sequence[Nodes], ts: int) -> None:
        """What deletions of single series that follow each other in a commit do."""
        self.schema.changes.delete_paths(paths, ts)

    def _alias_set(self, op: records.AliasSet, ts: int) -> None:
        self.schema.changes.set_alias(parse_stored(op.path), op.alias, ts)

    def _series_loaded(self, op: records.SeriesLoaded, ts: int) -> None:
        self.schema.changes.load_devices(op.devices, ts)
