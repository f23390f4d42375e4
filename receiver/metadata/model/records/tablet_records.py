"""Records of the log about tables and tablets: what is loaded, cut where it can be placed."""

from __future__ import annotations

from receiver.metadata.model.records.record_parts import Record


class TableMade(Record, frozen=True, tag=100):
    """A table: a storage group, or a database of the table model.

    Attributes:
        id: 32 hex digits; nobody else's, whatever becomes of the name.
        name: of the storage group, as the directory of its files is called.
    """

    id: str
    name: str


class TableDropped(Record, frozen=True, tag=101):
    """A table is no more, nor are its tablets; its name is free."""

    id: str


class TableForgotten(Record, frozen=True, tag=102):
    """The row of a table that was dropped goes, with those of its tablets."""

    id: str


class TabletMade(Record, frozen=True, tag=103):
    """A run of time partitions of a table.

    Attributes:
        id: 32 hex digits; nobody else's.
        table: id of the table.
        begin: number of the first partition.
        end: of the first that is not in it.
        by_hand: whether it stays without files.
    """

    id: str
    table: str
    begin: int
    end: int
    by_hand: bool = False


class TabletDropped(Record, frozen=True, tag=115):
    """A tablet that nobody made by hand is no more: no file of it is known. Its table stays."""

    id: str


class TabletForgotten(Record, frozen=True, tag=116):
    """The row of a tablet that was dropped goes, with that of its placement."""

    id: str


class TableReplicasSet(Record, frozen=True, tag=124):
    """How many storage nodes are to have the tablets of a table; None for as many as configured.

    With it the version of what nodes know of the table is this commit.

    Attributes:
        replicas: how many; None for as many as configured.
    """

    id: str
    replicas: int | None


class TableTtlSet(Record, frozen=True, tag=125):
    """Files of a table are kept so long, in milliseconds; None for ever: as its storage group has.

    With it the version of what nodes know of the table is this commit.

    Attributes:
        ttl: in milliseconds; None for ever.
    """

    id: str
    ttl: int | None
