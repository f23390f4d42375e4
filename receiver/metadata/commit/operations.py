"""The operations of the schema as a caller uses them: paths as users write them, one call a commit.

    engine.set_storage_group("root.turbine")
    engine.create_series("root.turbine.d1.s1", "FLOAT", "RLE", tags={"unit": "C"})
    engine.alter("root.turbine.d1.s1", Rename("unit", "si"))

`Engine` is made of this; what is said here in paths and names becomes records, which the rules
(`receiver.metadata.commit.judging.rules`) check. Every method returns the timestamp of its commit,
raises what `Engine.commit` does, and `IllegalPathError` for a text that is no path.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from common.tsfile.layout import Compression, DataType, Encoding
from receiver.metadata.commit.group_deletion import GroupsDeleted, delete_groups
from receiver.metadata.commit.guards import Guard
from receiver.metadata.commit.series_rules.schema_checks import (
    check_ttl,
    check_upload,
    check_written,
)
from receiver.metadata.model import records
from receiver.metadata.model.alterations import Alteration, Labels, alter
from receiver.metadata.model.errors import (
    GuardFailed,
    SchemaRefusedError,
    SeriesMissingError,
    StorageGroupMissingError,
)
from receiver.metadata.model.paths import Nodes, Pattern, format_path, parse_path, parse_pattern
from receiver.metadata.model.types import (
    compression_named,
    default_encoding,
    encoding_named,
    type_named,
)

if TYPE_CHECKING:
    from receiver.metadata.model.engine_options import EngineOptions
    from receiver.metadata.state.lock import Reading
    from receiver.metadata.state.state import State

__all__ = [
    "DEFAULT_COMPRESSION",
    "Described",
    "NewSeries",
    "Operations",
    "created",
    "storage_group_at",
]

T = TypeVar("T")

DEFAULT_COMPRESSION: Final = Compression.SNAPPY
"""Of a series that was created without one, as in Apache IoTDB before 1.0."""


class Described(Protocol):
    """What is said of a series that is to be made; `NewSeries` is one."""

    @property
    def name(self) -> str:
        """Of the measurement, bare."""

    @property
    def type(self) -> DataType:
        """Of its values."""

    @property
    def encoding(self) -> Encoding | None:
        """None for the usual one of the type."""

    @property
    def compression(self) -> Compression | None:
        """None for the usual one."""

    @property
    def alias(self) -> str | None:
        """Its other name in the device."""

    @property
    def tags(self) -> Mapping[str, str]:
        """What it can be found by."""

    @property
    def attributes(self) -> Mapping[str, str]:
        """What else is known of it."""

    @property
    def props(self) -> Mapping[str, str]:
        """What its encoder is told."""


@dataclass(frozen=True, slots=True)
class NewSeries:
    """See `Described`."""

    name: str
    type: DataType
    encoding: Encoding | None = None
    compression: Compression | None = None
    alias: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    props: Mapping[str, str] = field(default_factory=dict)


class Operations(ABC):
    """The seven operations, and `alter` for the six alterations."""

    options: EngineOptions

    @abstractmethod
    def commit(self, ops: Sequence[records.Op], guards: Sequence[Guard] = ()) -> int:
        """See `Engine.commit`."""

    @abstractmethod
    def reading(self) -> Reading:
        """See `Engine.reading`."""

    @abstractmethod
    def tags_of(self, offset: int) -> tuple[dict[str, str], dict[str, str]]:
        """Tags and attributes at an offset of the tlog."""

    # -- storage groups ----------------------------------------------------------------------

    def set_storage_group(self, *paths: str | Nodes) -> int:
        """New storage groups, all in one commit."""
        texts = [_path(each) for each in paths]
        for text in texts:
            check_written(text, [text])
        return self.commit([records.StorageGroupSet(text) for text in texts])

    def delete_storage_group(self, *patterns: str | Pattern) -> int:
        """The storage groups that match, with all that is below them, in one commit.

        Raises:
            StorageGroupMissingError: a pattern matches none.
            StorageGroupHoldsFilesError: they hold loaded files.
        """
        return self.drop_storage_groups(*patterns).commit

    def drop_storage_groups(
        self,
        *patterns: str | Pattern,
        with_data: bool = False,
        held_from: int | None = None,
        allowed: str | None = None,
    ) -> GroupsDeleted:
        """The same, and what went with them; see `delete_groups`."""
        return delete_groups(
            self,
            [_pattern(each) for each in patterns],
            with_data=with_data,
            held_from=held_from,
            allowed=allowed,
        )

    def set_ttl(self, path: str | Nodes, ttl: int | None) -> int:
        """How long files of a storage group are kept, in milliseconds; None for ever.

        Raises:
            TtlRefusedError: not from 1 to 2^63 - 1.
        """
        text = _path(path)
        check_ttl(text, ttl)
        return self.commit([records.TtlSet(text, ttl)])

    def set_upload(self, path: str | Nodes, after: int | None) -> int:
        """When files of a storage group go into the object store; returns the commit.

        Args:
            path: of the storage group.
            after: milliseconds behind their load, 0 at once, -1 never; None as configured.

        Raises:
            RefusedCommitError: that is no time.
            StorageGroupMissingError: there is no such group.
        """
        text = _path(path)
        check_upload(text, after)
        return self.commit([records.UploadSet(text, after)])

    # -- series ------------------------------------------------------------------------------

    def create_series(
        self,
        path: str | Nodes,
        data_type: DataType | str,
        encoding: Encoding | str | None = None,
        compression: Compression | str | None = None,
        *,
        alias: str | None = None,
        tags: Mapping[str, str] | None = None,
        attributes: Mapping[str, str] | None = None,
        props: Mapping[str, str] | None = None,
    ) -> int:
        """One new series; types, encodings and compressions may be given by name."""
        nodes = parse_path(path) if isinstance(path, str) else path
        new = NewSeries(
            name=nodes[-1],
            type=type_named(data_type) if isinstance(data_type, str) else data_type,
            encoding=encoding_named(encoding) if isinstance(encoding, str) else encoding,
            compression=(
                compression_named(compression) if isinstance(compression, str) else compression
            ),
            alias=alias,
            tags=tags or {},
            attributes=attributes or {},
            props=props or {},
        )
        return self.create_device(nodes[:-1], [new])

    def create_device(
        self, device: str | Nodes, series: Sequence[Described], *, aligned: bool = False
    ) -> int:
        """New series of one device, in one commit; the device may be there already.

        Where it lies in no storage group, one is made at the level of the options, if they say so.

        Args:
            device: path.
            series: one at least.
            aligned: whether they share one time column.
        """
        nodes = parse_path(device) if isinstance(device, str) else device
        if not nodes:
            raise SchemaRefusedError("root itself cannot be a series", extra={"path": "root"})
        op = created(nodes, series, aligned=aligned)
        check_written(op.device, (op.device, *op.names, *(op.aliases or ())))
        return self._create(nodes, op)

    def _create(self, nodes: Nodes, op: records.SeriesCreated) -> int:
        while True:
            group = self._make_group(nodes)
            try:
                return self.commit([*group, op])
            except StorageGroupMissingError:
                # It went after we had seen it; so this ends, for each time another is done.
                if group or not self._makes_group(nodes):
                    raise

    def _makes_group(self, device: Nodes) -> bool:
        return self.options.auto_create and len(device) >= 2

    def _make_group(self, device: Nodes) -> list[records.Op]:
        if not self._makes_group(device):
            return []
        with self.reading() as state:
            if state.schema.groups.of(device) is not None:
                return []
        group = storage_group_at(device, self.options.storage_group_level)
        return [records.StorageGroupSet(format_path(group), if_missing=True)]

    def delete_series(self, *patterns: str | Pattern) -> int:
        """All series that match, in one commit; a path may end in an alias.

        Raises:
            SeriesMissingError: a pattern matches none.
        """
        with self.reading() as state:
            meant = [_by_name(state, _pattern(each)) for each in patterns]
        ops: list[records.Op] = []
        for number, pattern in enumerate(meant):
            before = meant[:number]
            if not (pattern.is_path and any(each.matches(pattern.prefix) for each in before)):
                ops.append(records.SeriesDeleted(pattern.text))
        return self.commit(ops)

    def set_alias(self, path: str | Nodes, alias: str | None) -> int:
        """Another alias of a series, in place of the one that it has; None for none."""
        with self.reading() as state:
            nodes = _series(state, path)[1]
        text = format_path(nodes)
        check_written(text, [alias])
        return self.commit([records.AliasSet(text, alias)])

    def alter(self, path: str | Nodes, alteration: Alteration) -> int:
        """Alter tags, attributes and alias of a series (`receiver.metadata.model.alterations`).

        An alteration that changes nothing commits nothing; the newest commit is returned then.

        Raises:
            SeriesMissingError: there is no such series.
            TagExistsError, TagMissingError, TagRefusedError: see `alterations.alter`.
        """
        while True:
            with self.reading() as state:
                row, nodes = _series(state, path)
                series = state.schema.series.describe(row)
                changed, newest = state.schema.series.changed(nodes), state.newest
            tags, attributes = self.tags_of(series.tags_at) if series.tags_at >= 0 else ({}, {})
            before = Labels(tags, attributes, series.alias)
            ops = _altered(format_path(nodes), before, alteration)
            if not ops:
                return newest
            try:
                return self.commit(ops, [Guard("series", format_path(nodes), changed)])
            except GuardFailed:
                continue  # somebody else came first; so it ends, for each time another is done


# -- records -------------------------------------------------------------------------------------


def created(
    device: Nodes, series: Sequence[Described], *, aligned: bool = False
) -> records.SeriesCreated:
    """The record of new series of a device."""
    return records.SeriesCreated(
        device=format_path(device),
        names=tuple(each.name for each in series),
        types=bytes(each.type for each in series),
        encodings=bytes(
            default_encoding(each.type) if each.encoding is None else each.encoding
            for each in series
        ),
        compressions=bytes(
            DEFAULT_COMPRESSION if each.compression is None else each.compression for each in series
        ),
        aligned=aligned,
        aliases=_column(each.alias for each in series),
        tags=_column(dict(each.tags) for each in series),
        attributes=_column(dict(each.attributes) for each in series),
        props=_column(dict(each.props) for each in series),
    )


def _column(values: Iterable[T]) -> tuple[T, ...] | None:
    """A column of a record, None where no series has anything in it."""
    column = tuple(values)
    return column if any(column) else None


def storage_group_at(device: Nodes, level: int) -> Nodes:
    """The storage group that is made for a device which has none.

    Args:
        device: its nodes, two at least.
        level: nodes of the storage group below root; less than one counts as one.
    """
    return device[: max(level, 1) + 1]


def _altered(path: str, before: Labels, alteration: Alteration) -> list[records.Op]:
    after = alter(path, before, alteration)
    ops: list[records.Op] = []
    tags, attributes = dict(after.tags), dict(after.attributes)
    if tags != before.tags or attributes != before.attributes:
        ops.append(records.TagsSet(path, tags, attributes))
    if after.alias != before.alias:
        check_written(path, [after.alias])
        ops.append(records.AliasSet(path, after.alias))
    return ops


# -- what a caller names -------------------------------------------------------------------------


def _path(path: str | Nodes) -> str:
    return format_path(parse_path(path) if isinstance(path, str) else path)


def _pattern(pattern: str | Pattern) -> Pattern:
    return parse_pattern(pattern) if isinstance(pattern, str) else pattern


def _series(state: State, path: str | Nodes) -> tuple[int, Nodes]:
    """The row and the path of a series, by its name or alias."""
    nodes = parse_path(path) if isinstance(path, str) else path
    row = state.schema.series.find(nodes)
    if row < 0:
        text = format_path(nodes)
        raise SeriesMissingError(f"there is no series {text}", extra={"path": text})
    return row, state.schema.tree.nodes(row)


def _by_name(state: State, pattern: Pattern) -> Pattern:
    """A path that ends in an alias, with the name in its place."""
    if not pattern.is_path:
        return pattern
    row = state.schema.series.find(pattern.prefix)
    return pattern if row < 0 else Pattern.of(state.schema.tree.nodes(row))
