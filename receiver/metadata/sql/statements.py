"""Statements that change the schema, as values; those that ask are in `receiver.metadata.query`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from receiver.metadata.commit.operations import NewSeries
from receiver.metadata.model.alterations import Alteration
from receiver.metadata.model.paths import Nodes, Pattern
from receiver.metadata.query.questions import Asked, Query

__all__ = [
    "AlterTable",
    "AlterTimeseries",
    "BeginTransaction",
    "ChangeStatement",
    "CommitTransaction",
    "CreateAligned",
    "CreateSnapshot",
    "CreateTable",
    "CreateTimeseries",
    "DeleteStorageGroups",
    "DeleteTimeseries",
    "LoadFiles",
    "OfReceiver",
    "RollBackTransaction",
    "SetStorageGroups",
    "SetTtl",
    "SetUpload",
    "ShowTransactions",
    "Statement",
    "TablePartitions",
    "TxnStatement",
    "is_query",
]


@dataclass(frozen=True, slots=True)
class BeginTransaction:
    """`begin`: what follows in the session is one transaction."""


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """`commit`: all of it, or nothing."""


@dataclass(frozen=True, slots=True)
class RollBackTransaction:
    """`rollback`: nothing of it."""


@dataclass(frozen=True, slots=True)
class ShowTransactions:
    """`show transactions`: those of all sessions that are not over."""


@dataclass(frozen=True, slots=True)
class CreateSnapshot:
    """`create snapshot for schema`: a checkpoint, now."""


@dataclass(frozen=True, slots=True)
class SetStorageGroups:
    """`set storage group to <path>, ...`: all of them in one commit."""

    paths: tuple[Nodes, ...]


@dataclass(frozen=True, slots=True)
class DeleteStorageGroups:
    """`delete storage group <path>, ... [with data ['<digest>']]`: with all that is below.

    Attributes:
        patterns: of their paths.
        with_data: whether the loaded files that they hold go, too.
        allowed: digest of the list of these files.
    """

    patterns: tuple[Pattern, ...]
    with_data: bool = False
    allowed: str | None = None


@dataclass(frozen=True, slots=True)
class CreateTimeseries:
    """`create timeseries <path> ...`: one series of a device."""

    device: Nodes
    series: NewSeries


@dataclass(frozen=True, slots=True)
class CreateAligned:
    """`create aligned timeseries <device>(...)`: series that share one time column."""

    device: Nodes
    series: tuple[NewSeries, ...]


@dataclass(frozen=True, slots=True)
class DeleteTimeseries:
    """`delete timeseries <pattern>, ...`: all of them in one commit."""

    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class SetTtl:
    """`set ttl to <storage group> <ms>`, and `unset ttl to <storage group>` with None."""

    path: Nodes
    ttl: int | None


@dataclass(frozen=True, slots=True)
class SetUpload:
    """`set upload to <storage group> at once`, `after <time>`, `never`, and `unset upload to`.

    `after`: milliseconds behind the load, -1 for never; None for as it is configured.
    """

    path: Nodes
    after: int | None


@dataclass(frozen=True, slots=True)
class AlterTimeseries:
    """`alter timeseries <path> ...`."""

    path: Nodes
    alteration: Alteration


@dataclass(frozen=True, slots=True)
class TablePartitions:
    """`partitions at (<number>, ...)`, or `from <time> to <time> [every <time>]`.

    Attributes:
        splits: numbers of partitions.
        begin: milliseconds since the epoch; None where numbers are given.
        end: behind the last.
        every: milliseconds of a tablet, None for those of a partition.
    """

    splits: tuple[int, ...] = ()
    begin: int | None = None
    end: int | None = None
    every: int | None = None


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`create table <path> [with (replicas = <n>, partitions ...)]`.

    `replicas` None: as many as configured.
    """

    path: Nodes
    replicas: int | None = None
    partitions: TablePartitions = TablePartitions()


@dataclass(frozen=True, slots=True)
class AlterTable:
    """`alter table <path> set replicas = <n>`, or `= default`, or `add partitions ...`.

    Attributes:
        path: of the table.
        replicas: how many nodes are to have it; None where nothing is said of that.
        as_configured: `default`.
        partitions: of the tablets that are added.
    """

    path: Nodes
    replicas: int | None = None
    as_configured: bool = False
    partitions: TablePartitions = TablePartitions()


@dataclass(frozen=True, slots=True)
class LoadFiles:
    """`load '<path>', ... [as <sender>, ...] [into '<storage group>'] [on duplicate <policy>]`.

    Attributes:
        paths: of the receiver's machine.
        owners: senders whose devices they are; none: the centre's own.
        group: storage group of files that do not lie as a database lays them.
        on_duplicate: what becomes of points that are there already.
    """

    paths: tuple[str, ...]
    owners: tuple[str, ...] = ()
    group: str | None = None
    on_duplicate: str = "error"


ChangeStatement = (
    CreateSnapshot
    | SetStorageGroups
    | DeleteStorageGroups
    | CreateTimeseries
    | CreateAligned
    | DeleteTimeseries
    | SetTtl
    | SetUpload
    | AlterTimeseries
)
"""A statement that changes something, or makes a checkpoint."""

TxnStatement = BeginTransaction | CommitTransaction | RollBackTransaction | ShowTransactions
"""A statement that a session carries out (`receiver.txn`), not an engine."""

OfReceiver = LoadFiles | CreateTable | AlterTable
"""A statement that a receiver which runs carries out, as a commit of its own."""

Statement = Query | ChangeStatement | TxnStatement | OfReceiver


def is_query(statement: Statement) -> TypeGuard[Query]:
    """Whether a statement only asks."""
    return isinstance(statement, Asked)
