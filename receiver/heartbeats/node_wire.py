"""What storage nodes and their master say to each other, and what a node's store must tell of it.

One call, `POST /v1/nodes/heartbeat`. A heartbeat says which start of which node it is of. It brings
a registration at the start and when it is asked for, and a report when something changed or when a
full one is asked for.

Reports are made of rows which say how a tablet stands, not what was done to it, so one that comes
twice does no harm. What changes at a node is counted by its store: each change has the next
sequence number. An incremental report has all that changed behind `base`, up to `sequence`; the
master takes it if it has what was before, and its answer says up to where it has all now. What is
not acknowledged is told again. A full report comes in pages, in order of the tablets' ids, and
counts when its last page is there: it replaces all that the master believed of this node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Final, Literal, NamedTuple, Protocol

import msgspec

from common.wire.base import Count, Struct

__all__ = [
    "MOST_BEFORE",
    "MOST_BYTES",
    "PAGE_TABLETS",
    "TABLET_STATES",
    "ChangedTablets",
    "DirectoryRoom",
    "HeldTablets",
    "HoldsTablets",
    "MasterMark",
    "NodeHeartbeat",
    "NodeHeartbeatAnswer",
    "NodeRegistration",
    "NodeStart",
    "PagesReceived",
    "ReportedTablet",
    "TabletReport",
    "TabletState",
    "TicketKey",
    "free_of",
]

PAGE_TABLETS: Final = 1000
"""Tablets of a page, at most: a page is taken in by the master in some milliseconds."""

MOST_BEFORE: Final = 64
"""Starts of which a node tells; a master that knows none of them asks an operator."""

MOST_BYTES: Final = (1 << 63) - 1
"""What a size can be, here and in all that is told of it."""

Ident = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
"""A uuid, or another random id: 32 lower-case hex digits."""
TabletState = Literal["copying", "running", "dropping", "damaged"]
TABLET_STATES: Final[tuple[TabletState, ...]] = ("copying", "running", "dropping", "damaged")
_Name = Annotated[str, msgspec.Meta(max_length=255)]


# -- who a node is -------------------------------------------------------------------------------


class NodeStart(Struct, frozen=True, kw_only=True):
    """Which start of which node it is.

    Attributes:
        uuid: of the node, for as long as its directory is.
        instance: counts its starts; on its disk before the first heartbeat.
        boot: random, of this start alone.
    """

    uuid: Ident
    instance: Annotated[int, msgspec.Meta(ge=1, le=(1 << 53))]
    boot: Ident


class DirectoryRoom(Struct, frozen=True, kw_only=True):
    """A data directory of a node.

    Attributes:
        path: at the node.
        uuid: of its marker; empty where that cannot be read.
        device: of the file system, as the node counts it; those of one disk have the same.
        capacity: bytes of the file system.
        free: of these.
        problem: why nothing can be put there now; empty if it can.
        begun: whether this start of the node began with it: what it has told of its files is no
            longer certain while there is a problem.
    """

    path: Annotated[str, msgspec.Meta(max_length=4096)]
    uuid: str = ""
    device: Count = 0
    capacity: Count = 0
    free: Count = 0
    problem: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    begun: bool = False


def free_of(rooms: Iterable[DirectoryRoom]) -> int:
    """Bytes that are free in directories together, those of one file system once.

    Not more than a size can be: what nodes say, each by itself, may not be so in sum.
    """
    free = {each.device: each.free for each in rooms if not each.problem}
    return min(sum(free.values()), MOST_BYTES)


class NodeRegistration(Struct, frozen=True, kw_only=True):
    """What a master must know to use a node.

    Attributes:
        url: where the node is called, and where bytes go.
        name: for people.
        version: of tsferry.
        host: of the machine, so that two copies never lie on one; what a machine's id is made of
            is not told.
        directories: what can be put where.
        call_key: random, of this start; the master's calls to the node carry it.
        before: `boot` of the starts before this one, the oldest first, `MOST_BEFORE` at most. The
            one that the master knows is among them, or this is a copy that went its own way.
        cache: bytes that it keeps of the object store for others; 0 for none.
    """

    url: Annotated[str, msgspec.Meta(pattern="^https?://[^/?#@ ]+$", max_length=1000)]
    name: _Name = ""
    version: _Name = ""
    host: _Name = ""
    directories: Annotated[tuple[DirectoryRoom, ...], msgspec.Meta(max_length=1000)] = ()
    call_key: Annotated[str, msgspec.Meta(min_length=32, max_length=128)]
    before: Annotated[tuple[Ident, ...], msgspec.Meta(max_length=MOST_BEFORE)] = ()
    cache: Count = 0


# -- what it holds -------------------------------------------------------------------------------


class ReportedTablet(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """How a tablet stands at a node; an array in this order.

    Ten million of them come after a restart, and to hold each id against a pattern takes most of
    the time that a page needs: whoever packs them looks at all of a page at once.

    Attributes:
        id: of the tablet, 32 lower-case hex digits.
        generation: of the placement that the node acts by.
        state: `running` when all that it is to have is there.
        version: of what the node must know of the table (TTL, attributes): a commit.
        files: how many it has.
        size: bytes of these.
        digest: of the list of its files, 32 hex digits; which one is as the store makes it.
    """

    id: str
    generation: Count = 0
    state: TabletState = "running"
    version: Count = 0
    files: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    size: Count = 0
    digest: str = "0" * 32


class TabletReport(Struct, frozen=True, kw_only=True):
    """Some of what a node holds.

    Attributes:
        is_incremental: what changed behind `base`; else a page of all.
        sequence: of the newest change that is in it; of a full report, in all of its pages.
        base: see above; of an incremental one.
        number: counts the full reports of a start, from 1.
        page: of this page, from 0; of a full report.
        is_last: whether it has no more pages.
        tablets: in order of their ids, and no id twice.
        removed: ids of what is no more there; of an incremental one.
    """

    is_incremental: bool
    sequence: Count
    base: Count = 0
    number: Count = 0
    page: Count = 0
    is_last: bool = False
    tablets: Annotated[tuple[ReportedTablet, ...], msgspec.Meta(max_length=PAGE_TABLETS)] = ()
    removed: Annotated[tuple[str, ...], msgspec.Meta(max_length=PAGE_TABLETS)] = ()


# -- the call ------------------------------------------------------------------------------------


class NodeHeartbeat(Struct, frozen=True, kw_only=True):
    """`POST /v1/nodes/heartbeat`.

    Attributes:
        start: who says it.
        engine: uuid of the engine that the node belongs to; empty before its first registration.
        incarnation: the highest of the engine's that the node has seen.
        commit: the newest commit that the node has seen of it.
        life: of the master that it was seen of; empty if that said none.
        registration: at the start, and when it is asked for.
        report: when something changed, or all was asked for.
        directories: what is free now; left out where the registration has it.
        load: calls that the node works on.
        doubt: why the node takes no order that destroys something; empty if it takes them.
    """

    start: NodeStart
    engine: str = ""
    incarnation: Count = 0
    commit: Count = 0
    life: Annotated[str, msgspec.Meta(max_length=64)] = ""
    registration: NodeRegistration | None = None
    report: TabletReport | None = None
    directories: Annotated[tuple[DirectoryRoom, ...], msgspec.Meta(max_length=1000)] = ()
    load: Count = 0
    doubt: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class MasterMark(Struct, frozen=True, kw_only=True):
    """Who answers: an engine, which of its lives, and where it stands.

    Attributes:
        engine: its uuid.
        incarnation: see `receiver.storage.stores.incarnation`; 0 for one that never had a store.
        ident: of the incarnation; empty with 0.
        commit: the newest.
        life: of the process, as the engine's log has it; empty of an earlier release, and while it
            cannot be committed. See `receiver.heartbeats.master_life`.
    """

    engine: Ident
    incarnation: Count = 0
    ident: str = ""
    commit: Count = 0
    life: Annotated[str, msgspec.Meta(max_length=64)] = ""


class PagesReceived(Struct, frozen=True, kw_only=True):
    """What the master has of a full report that is under way.

    Attributes:
        number: of the report.
        pages: how many it has, so the next one is that with this number.
    """

    number: Count
    pages: Count


class TicketKey(Struct, frozen=True, kw_only=True):
    """A key by which a node knows the tickets of those whom the master sends there.

    Attributes:
        ident: stands in each ticket.
        key: 64 hex digits.
        lasts: seconds, by the node's clock that nobody sets, since this heartbeat's answer.
    """

    ident: Ident
    key: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    lasts: Annotated[float, msgspec.Meta(gt=0)]


class NodeHeartbeatAnswer(Struct, frozen=True, kw_only=True):
    """What the master makes of a heartbeat.

    Attributes:
        master: who answers.
        needs_reregister: nothing of this heartbeat was taken; the next one is to bring a
            registration.
        needs_full_report: the next one is to bring all, whatever was reported before.
        acknowledged: the master has all changes of this start up to this one; None while it waits
            for a full report.
        received: of a full report that is under way.
        raise_to: nothing of this heartbeat was taken; the number of this start is to be this one at
            least, since an operator lets the node go on from an older copy of its directory.
        error: what is wrong with the node, for people; the rest was taken all the same.
        ticket_key: the newest.
        lacks: the commit that the node has seen, where this engine knows that it never had it; 0
            where it had, or cannot tell.
        slots: the version of the cache slots; 0 for none.
    """

    master: MasterMark
    needs_reregister: bool = False
    needs_full_report: bool = False
    acknowledged: Count | None = None
    received: PagesReceived | None = None
    raise_to: Count = 0
    error: str = ""
    ticket_key: TicketKey | None = None
    lacks: Count = 0
    slots: Count = 0


# -- a node's store ------------------------------------------------------------------------------


class HeldTablets(NamedTuple):
    """All tablets of a node as of one moment.

    Attributes:
        sequence: of the newest change that is in it.
        tablets: in order of their ids.
    """

    sequence: int
    tablets: Sequence[ReportedTablet]


class ChangedTablets(NamedTuple):
    """What has changed behind a sequence number.

    Attributes:
        sequence: of the newest change that is in it.
        tablets: as they stand now, in order of their ids.
        removed: ids of those that are no more there.
    """

    sequence: int
    tablets: Sequence[ReportedTablet]
    removed: Sequence[str]


class HoldsTablets(Protocol):
    """What a node's store of tablets tells, so that the node can report it; from any thread.

    A change is counted once what it says is durable: what is reported outlives a power cut.
    """

    def held(self) -> HeldTablets:
        """All that is there now."""
        ...

    def changed_since(self, sequence: int, most: int) -> ChangedTablets | None:
        """What has changed behind a sequence number, in the order of the changes.

        Args:
            sequence: what was acknowledged.
            most: so many tablets and removed ids together; further changes are left for the next
                time, so `sequence` of the answer is that of the last one which is in it.

        Returns:
            None if it is not known any more: all has to be told.
        """
        ...

    def notify(self, changed: Callable[[], None]) -> None:
        """Have something called, in no time, whenever something has changed."""
        ...
