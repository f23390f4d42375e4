"""Records of the log about the schema, and the keys of who embeds an engine.

Paths and devices are texts of `receiver.metadata.model.paths`, in their one form: back-ticks where
needed. Types, encodings and compressions are the codes of the TsFile format, one byte a series.
"""

from __future__ import annotations

from collections.abc import Sequence

from common.wire.base import CommitTs
from receiver.metadata.model.records.record_parts import CodeBytes, RawTime, Record


class StorageGroupSet(Record, frozen=True, tag=17):
    """A new storage group.

    Attributes:
        path: of it.
        if_missing: nothing happens where the path lies in one already.
    """

    path: str
    if_missing: bool = False


class StorageGroupDeleted(Record, frozen=True, tag=18):
    """A storage group goes, with all that is below it."""

    path: str


class TtlSet(Record, frozen=True, tag=19):
    """How long files of a storage group are kept.

    Attributes:
        path: of the storage group.
        ttl: in milliseconds; None for ever.
    """

    path: str
    ttl: int | None


class SeriesCreated(Record, frozen=True, tag=20):
    """New series of one device; it lies in a storage group that is there.

    Attributes:
        device: the device; made where it is missing.
        names: of the measurements, bare.
        types: TSDataType of each.
        encodings: TSEncoding of each.
        compressions: CompressionType of each.
        aligned: whether a device that is made now shares one time column.
        aliases: of each, or None where none has one.
        tags: of each, or None where none has any.
        attributes: of each, or None where none has any.
        props: of each, what the encoder was told, or None where none has any.
    """

    device: str
    names: Sequence[str]
    types: CodeBytes
    encodings: CodeBytes
    compressions: CodeBytes
    aligned: bool = False
    aliases: Sequence[str | None] | None = None
    tags: Sequence[dict[str, str]] | None = None
    attributes: Sequence[dict[str, str]] | None = None
    props: Sequence[dict[str, str]] | None = None


class SeriesDeleted(Record, frozen=True, tag=21):
    """All series that match a pattern at this commit go, and the nodes that are empty then.

    Attributes:
        pattern: as `root.a.*`.
    """

    pattern: str


class AliasSet(Record, frozen=True, tag=22):
    """The other name of a series in its device; None takes it away.

    Attributes:
        alias: the name; None for none.
    """

    path: str
    alias: str | None


class TagsSet(Record, frozen=True, tag=23):
    """All tags and attributes of a series from now on: the outcome of an alteration.

    Attributes:
        tags: what it can be found by.
        attributes: what else is known of it.
    """

    path: str
    tags: dict[str, str]
    attributes: dict[str, str]


class LoadedDevice(Record, frozen=True):
    """The series of a device of a loaded file.

    Attributes:
        aligned: whether it shares one time column.
        names: of the measurements, bare.
        types: TSDataType of each.
        encodings: TSEncoding of each.
        compressions: CompressionType of each.
        lasts: newest time of each, None without.
    """

    device: str
    aligned: bool
    names: Sequence[str]
    types: CodeBytes
    encodings: CodeBytes
    compressions: CodeBytes
    lasts: Sequence[RawTime | None]


class SeriesLoaded(Record, frozen=True, tag=24):
    """What a loaded file holds: series that are missing are made, times grow.

    It stands behind the `FileLoaded` of the file, in the same commit or a later one; the storage
    groups are there.
    """

    physical: str
    devices: Sequence[LoadedDevice]


class SchemaSynced(Record, frozen=True, tag=25):
    """How far a sender's schema log is applied.

    Attributes:
        sender: whose.
        identity: of the log; another log has another.
        offset: behind the last byte (or commit) applied.
        applied: records of this step that took effect.
        failed: (record, reason) of those that did not, the first hundred.
        unapplied: how many did not.
        mark: by which the sender knows its log again; given back to it as it is.
        whole: the log was told from its begin, so what was counted before is told again.
    """

    sender: str
    identity: str
    offset: CommitTs
    applied: int = 0
    failed: Sequence[tuple[str, str]] = ()
    unapplied: int = 0
    mark: str = ""
    whole: bool = False


class KeysWritten(Record, frozen=True, tag=26):
    """Of the key-value store: first the removals, then the saves.

    Attributes:
        removals: prefixes whose keys go.
        saves: keys, with their values.
    """

    removals: Sequence[str]
    saves: dict[str, str]
