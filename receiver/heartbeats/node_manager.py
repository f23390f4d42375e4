"""The nodes that a master has heard from: who they are, when that was, what they report.

In this order a heartbeat is judged: is this a master, is the node of this engine, is it the newest
start of it, is it registered, what does it report. What is refused changes nothing of what is
known; the age of a node is by a clock that nobody sets. Only a registration that says something new
is committed, so a heartbeat costs no write.

Nothing is deleted here, whatever a node reports and however long it is silent: a tablet that the
catalogue does not have is shown as such (`ReportedColumns.unknown`).
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from common.errors import (
    ConflictError,
    GoneError,
    NotFoundError,
    NotTheWriterError,
    ProtocolError,
)
from receiver.heartbeats.master_life import MasterLife
from receiver.heartbeats.node_reports import NodeReports, ReportNews
from receiver.heartbeats.node_starts import (
    KnownStart,
    StartStanding,
    node_clone,
    start_standing,
)
from receiver.heartbeats.node_wire import MasterMark, NodeHeartbeatAnswer
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.wire import IncarnationMark
    from receiver.heartbeats.node_wire import (
        DirectoryRoom,
        NodeHeartbeat,
        NodeRegistration,
        NodeStart,
        TicketKey,
    )
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.tables.place_tables.storage_nodes import StorageNodeRow

__all__ = ["HeardNode", "NodeManager", "NodeSeen"]

log = logging.getLogger(__name__)

_REMOTE: Final = "remote"
_MOST_NODES: Final = 10_000
"""Whoever has a token of the role can register; this is what that can fill."""
_OWNER_LOOKED_AT: Final = 1.0
"""Seconds between two looks at which incarnation this is: a file says so."""


@dataclass
class HeardNode:
    """What is known of a node since this process began; lost with it.

    Attributes:
        start: the newest one.
        registration: of it.
        reports: of it.
        heard: when it last spoke, by the clock that nobody sets.
        directories: what is free there.
        load: calls that it works on.
        commit: the newest one that it has seen of this engine.
        doubt: why it takes no order that destroys something.
        refused: what was said to another start of it, or to a copy; the last one.
        lock: held while one of its heartbeats is worked on.
    """

    start: NodeStart
    registration: NodeRegistration
    reports: NodeReports
    heard: float
    directories: Sequence[DirectoryRoom] = ()
    load: int = 0
    commit: int = 0
    doubt: str = ""
    refused: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


class NodeSeen(NamedTuple):
    """A node as it stands now.

    Attributes:
        row: what is committed of it.
        heard: what is known beside that, None if it was not heard from since the start.
        age: seconds since it was last heard from, or since this process began.
        is_down: whether it has been silent for longer than `timeout`.
    """

    row: StorageNodeRow
    heard: HeardNode | None
    age: float
    is_down: bool


class NodeManager:
    """The nodes of one engine; any thread may call.

    Attributes:
        timeout: seconds of silence until a node counts as down.
        listeners: are told what reports changed, in the thread of the call.
        beaten: called behind each heartbeat that was taken, in the thread of the call.
        begins: called with a start of a node before it is the one that speaks for it: what was
            known of the one before counts no more.
        ticket_key: gives the key that goes to a node, by its uuid; None for none.
        life: which life of the master this is.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        timeout: float,
        incarnation: Callable[[], IncarnationMark | None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Know of nobody.

        Args:
            engine: of the master.
            timeout: see the class.
            incarnation: which of the owners of its copies this is.
            monotonic: seconds that nobody sets.
        """
        self.timeout = timeout
        self.listeners: list[Callable[[ReportNews], object]] = []
        self.beaten: Callable[[], object] = lambda: None
        self.begins: Callable[[NodeStart], object] = lambda start: None
        self.ticket_key: Callable[[str], TicketKey | None] = _no_key
        self.life = MasterLife(engine)
        self._engine = engine
        self._incarnation = incarnation
        self._monotonic = monotonic
        self._began = monotonic()
        self._owner: tuple[float, IncarnationMark | None] | None = None
        self._heard: dict[str, HeardNode] = {}
        self._registering = threading.Lock()

    # -- the call ----------------------------------------------------------------------------

    def heartbeat(self, said: NodeHeartbeat) -> NodeHeartbeatAnswer:
        """Take a heartbeat in.

        Raises:
            NotTheWriterError: this is no master, or none any more.
            ConflictError: the node is of another engine, or there are too many.
            GoneError: an operator has declared it lost.
            CloneError: it is an older start, or a copy.
            ProtocolError: its report is none.
        """
        mark = self.mark()
        self._check(said, mark)
        answer = self._answer(said, mark)
        self.beaten()
        if self._lacks(said):
            answer = msgspec.structs.replace(answer, lacks=said.commit)
        return answer

    def _lacks(self, said: NodeHeartbeat) -> bool:
        """Whether this engine never had what a node has seen.

        What was seen in no life that is known by name, and is not in its history, may be its own.
        """
        commit = said.commit
        if said.life and commit:
            return self.life.lacks(said.life, commit)
        with self._engine.reading():
            window = self._engine.window
            if not commit or not window.oldest <= commit <= self._engine.newest_commit:
                return False
            at = bisect_left(window.commits, commit)
            return window.commits[at] != commit

    def _answer(self, said: NodeHeartbeat, mark: MasterMark) -> NodeHeartbeatAnswer:
        heard = self._heard.get(said.start.uuid)
        if said.registration is not None:
            answer = self._register(said, said.registration, mark)
            if answer is not None:
                return answer
            heard = self._heard[said.start.uuid]
        if heard is None:
            return NodeHeartbeatAnswer(master=mark, needs_reregister=True)
        with heard.lock:
            return self._take(heard, said, mark)

    def mark(self) -> MasterMark:
        """Which master this is.

        Raises:
            NotTheWriterError: it is none, or none any more.
        """
        if self._engine.trouble is not None:
            raise NotTheWriterError(f"this is no master now: {self._engine.trouble}")
        now, owner = self._monotonic(), self._owner
        if owner is None or now - owner[0] > _OWNER_LOOKED_AT:
            owner = self._owner = now, self._incarnation()
        found = owner[1]
        return MasterMark(
            engine=self._engine.uuid,
            incarnation=0 if found is None else found.number,
            ident="" if found is None else found.ident,
            life=self.life.ident(),
            commit=self._engine.newest_commit,
        )

    def _check(self, said: NodeHeartbeat, mark: MasterMark) -> None:
        if said.engine not in ("", mark.engine):
            raise ConflictError(
                f"the node {said.start.uuid} is of the engine {said.engine}, this is {mark.engine}"
            )
        if said.incarnation > mark.incarnation:
            raise NotTheWriterError(
                f"this is incarnation {mark.incarnation} of the engine, and the node "
                f"{said.start.uuid} has heard incarnation {said.incarnation}: it was replaced"
            )

    def _take(self, heard: HeardNode, said: NodeHeartbeat, mark: MasterMark) -> NodeHeartbeatAnswer:
        if said.start != heard.start:
            if said.start.instance > heard.start.instance:
                return NodeHeartbeatAnswer(master=mark, needs_reregister=True)
            known = KnownStart(heard.start.instance, heard.start.boot)
            raise self._refusal(heard, known, said.start, ())
        with self._engine.reading() as state:
            row = state.node_table.rows.get(said.start.uuid)
            slots = state.cache_slots.row
        if row is None:  # forgotten meanwhile
            self._drop(said.start.uuid)
            return NodeHeartbeatAnswer(master=mark, needs_reregister=True)
        _must_not_be_lost(row)
        heard.heard = self._monotonic()
        heard.load, heard.commit, heard.doubt = said.load, said.commit, said.doubt
        if said.directories:
            heard.directories = said.directories
        error = self._report(heard, said)
        reports = heard.reports
        return NodeHeartbeatAnswer(
            master=mark,
            needs_full_report=reports.acknowledged is None and reports.received is None,
            acknowledged=reports.acknowledged,
            received=reports.received,
            error=error,
            ticket_key=self.ticket_key(said.start.uuid),
            slots=0 if slots is None else slots.version,
        )

    def _report(self, heard: HeardNode, said: NodeHeartbeat) -> str:
        """Take what it reports; returns what is wrong with that."""
        if said.report is None:
            return ""
        try:
            news = heard.reports.take(said.report)
        except ProtocolError as error:
            log.warning("a node's report is refused: %s", error.message)
            return error.message
        if news is not None:
            for each in self.listeners:
                each(news)
        return ""

    # -- registration ------------------------------------------------------------------------

    def _register(
        self, said: NodeHeartbeat, registration: NodeRegistration, mark: MasterMark
    ) -> NodeHeartbeatAnswer | None:
        """Let it be known; None if it is, else what it is told in place of that."""
        start = said.start
        with self._registering:
            with self._engine.reading() as state:
                row = state.node_table.rows.get(start.uuid)
                is_full = row is None and len(state.node_table.rows) >= _MOST_NODES
            if is_full:
                raise ConflictError(
                    f"there are {_MOST_NODES} nodes: forget those that are no more, and revoke a "
                    "token that registers what is none"
                )
            known = None if row is None else KnownStart(row.instance, row.boot)
            standing = start_standing(known, start, registration.before)
            heard = self._heard.get(start.uuid)
            if known is not None:
                if standing in (StartStanding.STALE, StartStanding.CLONE):
                    raise self._refusal(heard, known, start, registration.before)
                if standing is StartStanding.BEHIND:
                    return NodeHeartbeatAnswer(master=mark, raise_to=known.instance + 1)
            if row is not None:
                _must_not_be_lost(row)
            self._commit(row, start, registration)
            if heard is not None and heard.start == start:
                heard.registration = registration
                heard.directories = registration.directories
                return None
            log.info(
                "a node has registered", extra={"node": start.uuid, "instance": start.instance}
            )
            self.begins(start)
            self._heard[start.uuid] = HeardNode(
                start,
                registration,
                NodeReports(start.uuid, self._knows),
                self._monotonic(),
                registration.directories,
            )
        return None

    def _commit(
        self, row: StorageNodeRow | None, start: NodeStart, registration: NodeRegistration
    ) -> None:
        made = records.NodeRegistered(
            uuid=start.uuid,
            kind=_REMOTE,
            name=registration.name or registration.url,
            host=registration.host,
            instance=start.instance,
            addresses=(registration.url,),
            boot=start.boot,
        )
        if row is not None and _says_the_same(row, made):
            return
        try:
            self._engine.commit([made])
        except RefusedCommitError as error:
            raise ConflictError(f"the node {start.uuid} is not registered: {error}") from error

    def _refusal(
        self,
        heard: HeardNode | None,
        known: KnownStart,
        given: NodeStart,
        before: Sequence[str],
    ) -> Exception:
        error = node_clone(start_standing(known, given, before), known, given)
        if heard is not None:
            heard.refused = error.message
        log.warning("a node is refused: %s", error.message)
        return error

    def _drop(self, uuid: str) -> None:
        with self._registering:
            self._heard.pop(uuid, None)

    def _knows(self, ids: Sequence[str]) -> list[bool]:
        with self._engine.reading() as state:
            return _known_tablets(state, ids)

    # -- what is known -----------------------------------------------------------------------

    def nodes(self) -> list[NodeSeen]:
        """All remote nodes of the engine, by name."""
        with self._engine.reading() as state:
            rows = state.node_table.of_kind(_REMOTE)
        return [self._seen(row) for row in rows]

    def heard(self, uuid: str) -> HeardNode | None:
        """What is known of a node beside what is committed; None if it was not heard from."""
        return self._heard.get(uuid)

    def accept(self, uuid: str) -> None:
        """Let the next start of a node go on, whatever directory it has.

        Raises:
            NotFoundError: there is no such node.
        """
        with self._registering:
            with self._engine.reading() as state:
                row = state.node_table.rows.get(uuid)
            if row is None:
                raise NotFoundError(f"there is no storage node {uuid}")
            self._engine.commit(
                [
                    records.NodeRegistered(
                        uuid=row.uuid,
                        kind=row.kind,
                        name=row.name,
                        host=row.host,
                        instance=row.instance,
                        addresses=row.addresses,
                        boot="",
                    )
                ]
            )
            self._heard.pop(uuid, None)

    def _seen(self, row: StorageNodeRow) -> NodeSeen:
        heard = self._heard.get(row.uuid)
        age = self._monotonic() - (self._began if heard is None else heard.heard)
        return NodeSeen(row, heard, age, age > self.timeout)


def _no_key(_: str) -> None:
    return None


def _says_the_same(row: StorageNodeRow, made: records.NodeRegistered) -> bool:
    return (row.name, row.host, row.instance, row.addresses, row.boot) == (
        made.name,
        made.host,
        made.instance,
        tuple(made.addresses),
        made.boot,
    )


def _must_not_be_lost(row: StorageNodeRow) -> None:
    if row.lost:
        raise GoneError(
            f"an operator has declared the node {row.uuid} ({row.name}) lost. If it is there after "
            f"all: tsferry-receiver nodes found {row.uuid}"
        )


def _known_tablets(state: State, ids: Sequence[str]) -> list[bool]:
    """Which tablets the catalogue has, of tables that were dropped too."""
    rows = state.tablet_table.rows
    return [each in rows for each in ids]
