"""What is told of tables and tablets, as JSON and on terminals."""

from __future__ import annotations

from typing import Literal

from common.wire import Struct
from common.wire.base import CommitTs, Time
from receiver.metadata.state.tables.place_tables.tablets import TableState

__all__ = [
    "PartitionGap",
    "TableChange",
    "TableRequest",
    "TableStanding",
    "TableView",
    "TablesPage",
    "TabletView",
    "TabletsPage",
]


class TableView(Struct, frozen=True, kw_only=True):
    """A table: a storage group with loaded files, or a database of the table model.

    Attributes:
        id: 32 hex digits; a table that takes the name of a dropped one has another.
        name: of the storage group or database.
        created: the commit that made it.
        created_at: when that was, seconds since the epoch; None where it is not known.
        dropped: the commit that has dropped it since, 0 for none.
        tablets: how many it has.
        files: how many files readers see in them.
        size: bytes of these.
        first_time: no file has an earlier time, in the unit of the files; None without points.
        last_time: none has a later one.
        points: of these files, those twice that two files have; None where the server is of a
            version that does not say.
        state: as `TableStanding` has it; empty without a server, and of the past where the table
            has changed since.
    """

    id: str
    name: str
    created: CommitTs
    created_at: float | None = None
    dropped: CommitTs = 0
    tablets: int
    files: int
    size: int
    first_time: Time | None = None
    last_time: Time | None = None
    points: int | None = None
    state: TableState | Literal[""] = ""


class TablesPage(Struct, frozen=True, kw_only=True):
    """Tables as of a commit, by name.

    Attributes:
        commit: that they are as of.
        commit_at: when that was.
        tables: of this page.
        next: the cursor of the page after.
    """

    commit: CommitTs
    commit_at: float | None = None
    tables: list[TableView]
    next: str | None = None


class TabletView(Struct, frozen=True, kw_only=True):
    """A run of time partitions of a table.

    Attributes:
        id: 32 hex digits.
        begin: number of its first partition.
        end: of the first that is not in it.
        created: the commit that made it.
        files: see `TableView`, as the rest.
        size: see there.
        first_time: see there.
        last_time: see there.
        points: see there.
        nodes: uuids of the storage nodes that are to have a copy of it, the leader first; none
            where it is not placed, and of the past where it was placed anew since.
        placed: `creating` until the leader has reported it, then `running`; empty without nodes.
        generation: of that placement, 0 for none.
    """

    id: str
    begin: int
    end: int
    created: CommitTs
    files: int
    size: int
    first_time: Time | None = None
    last_time: Time | None = None
    points: int | None = None
    nodes: tuple[str, ...] = ()
    placed: str = ""
    generation: int = 0


class PartitionGap(Struct, frozen=True, kw_only=True):
    """Partitions between two tablets, or of the times that were asked for, that are in none.

    So nothing is loaded into them.

    Attributes:
        begin: number of the first.
        end: of the first behind them, which is in a tablet.
    """

    begin: int
    end: int


class TabletsPage(Struct, frozen=True, kw_only=True):
    """Tablets of a table, in order of their partitions.

    Attributes:
        commit: that they are as of.
        table: id of the table.
        name: of it.
        tablets: of this page, those that were asked for.
        gaps: before, between and behind those; one between two pages is of the later one.
        next: the cursor of the page after.
    """

    commit: CommitTs
    table: str
    name: str
    tablets: list[TabletView]
    gaps: list[PartitionGap]
    next: str | None = None


class TableChange(Struct, frozen=True, kw_only=True):
    """What is to be said of a table.

    Attributes:
        replicas: storage nodes that are to have each of its tablets; None: nothing is said of it.
        as_configured: as many are to have them as `nodes.replicas` says.
        splits: numbers of partitions, increasing: at each but the last a tablet begins, which ends
            at the next one.
        begin: the same by times, milliseconds since the epoch: the first tablet has this one.
        end: the last tablet ends with the partition before this time.
        every: the time of a tablet, a multiple of `partition_interval`; that by default.
        despite_offers: make tablets though storage nodes have some that are not known here.
    """

    replicas: int | None = None
    as_configured: bool = False
    splits: tuple[int, ...] = ()
    begin: int | None = None
    end: int | None = None
    every: int | None = None
    despite_offers: bool = False


class TableRequest(TableChange, frozen=True, kw_only=True):
    """A table that is to be made.

    Attributes:
        name: of the storage group, or of the database of the table model.
    """

    name: str


class TableStanding(Struct, frozen=True, kw_only=True):
    """How a table stands.

    Attributes:
        id: of it.
        name: of it.
        state: `creating` while a tablet is not at a node that is to have it, `altering` while a
            node has not confirmed what is known of the table, then `running`.
        replicas: storage nodes that are to have each tablet now, 0 for none.
        ttl: of its storage group, in milliseconds; None for ever.
        version: the commit since which nodes have to know that of it; 0 where nothing was said.
        tablets: how many it has.
        placed: of these, those that are placed at nodes.
        running: of these, those that their leaders have reported.
        short: tablets with fewer nodes than they should have.
        behind: uuids of nodes that have not confirmed that version.
        newer: uuids of nodes that know something of it as of a later commit than this receiver has:
            `copies offered` says what.
    """

    id: str
    name: str
    state: TableState
    replicas: int
    ttl: int | None = None
    version: CommitTs = 0
    tablets: int
    placed: int
    running: int
    short: int
    behind: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
