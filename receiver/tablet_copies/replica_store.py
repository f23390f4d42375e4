"""All replicas of a node: made, dropped, and told of.

Making and dropping can be asked for any number of times. What takes something away is refused while
the node doubts its master (`receiver.storagenode.node_home`): one that was restored from an older
copy does not know what it would destroy. Once it is trusted, what it has not listed stays as well.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from common.durable import Closing, free_bytes
from common.errors import ConflictError, DamagedError, NotFoundError, ProtocolError, Transient
from receiver.heartbeats.node_wire import ChangedTablets, HeldTablets
from receiver.tablet_copies.replica_directory import TABLETS, roomiest
from receiver.tablet_copies.tablet_replica import TabletReplica

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.durable import Tree
    from receiver.heartbeats.node_wire import MasterMark
    from receiver.tablet_copies.copies_wire import CopyOrder, DropOrder

__all__ = ["DoubtedMasterError", "ReplicaStore", "UnheardMasterError", "WeighsMaster"]

log = logging.getLogger(__name__)

_SHUNNED: Final = 30 * 86400.0
"""Seconds for which a directory that has let a file rot is the last choice: a disk that begins to
fail goes on. As long as no other one has room it is better than no copy."""
_TABLET: Final = re.compile(r"[0-9a-f]{32}\Z")


class DoubtedMasterError(ConflictError):
    """What a master asks for would take away what it may not know of; an operator decides."""

    slug = "doubted-master"


class UnheardMasterError(Transient):
    """A master has begun a life that no heartbeat of this node has heard of: it comes at once."""

    slug = "unheard-master"
    http_status = 503


class WeighsMaster(Protocol):
    """Who knows which master this node belongs to; see `NodeHome`.

    Attributes:
        doubt: why no order is carried out that destroys something; empty while there is no reason.
    """

    doubt: str

    @property
    def seen(self) -> MasterMark | None:
        """The master as it was last heard."""


class ReplicaStore(Closing):
    """The replicas; any thread may call.

    Attributes:
        troubles: what is not as it should be, by what it concerns, in words.
    """

    def __init__(
        self,
        trees: Sequence[Tree],
        home: WeighsMaster,
        *,
        keep_free: int = 0,
        free: Callable[[Tree], int] = lambda tree: free_bytes(tree.path),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open what is there; only while nobody else uses the directories.

        Args:
            trees: the directories of the node; whoever opened them closes them.
            home: weighs the word of masters.
            keep_free: bytes that stay free in each.
            free: bytes that are free in one.
            monotonic: seconds that nobody sets.

        Raises:
            DamagedError: a journal cannot be read.
        """
        self._trees = trees
        self._home = home
        self._keep_free = keep_free
        self._free = free
        self._monotonic = monotonic
        self._failed: dict[int, float] = {}
        self._changed: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        self._replicas: dict[str, TabletReplica] = {}
        self._news: dict[str, int] = {}
        self._number = 0
        self._coming: dict[int, int] = {}
        self.troubles: dict[str, str] = {}
        try:
            self._open_all()
        except OSError as error:
            raise DamagedError(
                f"a data directory of this node cannot be read: {error}; take it out of data_dirs "
                "and start the node anew: what lay there comes again"
            ) from error

    # -- replicas ----------------------------------------------------------------------------

    def tablets(self) -> list[str]:
        """Ids of those that are here."""
        with self._lock:
            return sorted(self._replicas)

    def replica(self, tablet: str) -> TabletReplica:
        """One of them.

        Raises:
            NotFoundError: it is not here.
        """
        found = self._replicas.get(tablet)  # no lock: who holds it may wait for a disk that hangs
        if found is None:
            raise NotFoundError(f"there is no replica of tablet {tablet[:40]!a} here")
        return found

    def make(self, orders: Sequence[CopyOrder], master: MasterMark) -> None:
        """Have replicas of these generations, and know this of their tables; what is there stays.

        Raises:
            DoubtedMasterError: these are another master's.
            ProtocolError: an order is none.
        """
        for order in orders:
            _check_order(order)
        with self._lock:
            self.hear(master)
            for order in orders:
                found = self._replicas.get(order.tablet)
                replica = found or self._new(order.tablet)
                if replica.generation >= order.generation:
                    if replica.know(order.attributes):
                        self._tell(order.tablet)
                    continue
                replica.make(order, roomiest(self._trees, self._room, 1, self._failing()))
                self._replicas[order.tablet] = replica
                self._tell(order.tablet)
        self._changed()

    def _new(self, tablet: str) -> TabletReplica:
        return TabletReplica(
            tablet, self._trees, lost=lambda: self.tell(tablet), rotted=self.note_failure
        )

    def drop(self, orders: Sequence[DropOrder], master: MasterMark) -> None:
        """Have no replicas of these generations; what is not there, or is another one, is no error.

        Raises:
            DoubtedMasterError: it may not know what it takes away.
        """
        with self._lock:
            for order in orders:
                replica = self._replicas.get(order.tablet)
                self._must_be_trusted(master, replica)
                if replica is not None and (why := replica.why_it_stays):
                    text = f"it is to go, and stays: {why}; see copies offered, at the master"
                    self.note_trouble(f"{order.tablet} kept", text)
                    continue
                if replica is not None and replica.drop(order.generation):
                    del self._replicas[order.tablet]
                    self._forget_trouble(order.tablet)
                self._tell(order.tablet)
        self._changed()

    def remove(
        self, tablet: str, generation: int, names: Sequence[str], master: MasterMark
    ) -> list[str]:
        """Let files of a replica go, as the master says; which have gone.

        Raises:
            NotFoundError: it is not here.
            DoubtedMasterError: it may not know what it takes away.
        """
        replica = self.replica(tablet)
        self._must_be_trusted(master, replica)
        gone = replica.remove(generation, names)
        if gone:
            self.tell(tablet)
        return gone

    def keep_unlisted(self) -> None:
        """An operator trusts a master that was doubted: what it does not list stays all the same.

        Raises:
            OSError: a disk does not take it; the master is to be doubted still.
        """
        with self._lock:
            replicas = list(self._replicas.values())
        for each in replicas:
            each.set_unlisted(True)

    def newest(self) -> int:
        """The newest commit that any file here came with, or that lists were of."""
        # No lock, as in `replica`.
        return max((each.newest() for each in list(self._replicas.values())), default=0)

    def place(self, wanted: int) -> int:
        """Number of the directory with most room, of which so many bytes are taken for now.

        One that has failed of late is taken only if no other one has room.

        Whoever asks calls `placed`, with the same, when the file is there or does not come.

        Raises:
            NoSpaceError: none has room for them.
        """
        with self._lock:
            room = [self._room(number) for number in range(len(self._trees))]
            number = roomiest(self._trees, room.__getitem__, wanted, self._failing())
            self._coming[number] = self._coming.get(number, 0) + wanted
        return number

    def placed(self, number: int, wanted: int) -> None:
        """See `place`."""
        with self._lock:
            self._coming[number] -= wanted

    def room(self, number: int) -> int:
        """Bytes that a directory has room for, beside what is coming."""
        with self._lock:
            return self._room(number)

    def note_failure(self, number: int) -> None:
        """A directory has let a file rot, or could not take one: its disk may be failing."""
        self._failed[number] = self._monotonic()

    def _failing(self) -> set[int]:
        now = self._monotonic()
        return {each for each, at in list(self._failed.items()) if now - at < _SHUNNED}

    def _room(self, number: int) -> int:
        free = self._free(self._trees[number]) - self._keep_free
        return free - self._coming.get(number, 0)

    # -- reports -----------------------------------------------------------------------------

    def held(self) -> HeldTablets:
        """See `HoldsTablets`."""
        with self._lock:
            number = self._number
            replicas = [self._replicas[each] for each in sorted(self._replicas)]
        return HeldTablets(number, [each.held() for each in replicas])

    def changed_since(self, sequence: int, most: int) -> ChangedTablets | None:
        """See `HoldsTablets`."""
        with self._lock:
            if sequence > self._number:
                return None
            behind = sorted((at, each) for each, at in self._news.items() if at > sequence)
            told = behind[:most]
            number = told[-1][0] if len(behind) > len(told) else self._number
            there = [each for _, each in told if each in self._replicas]
            gone = [each for _, each in told if each not in self._replicas]
            replicas = [self._replicas[each] for each in sorted(there)]
        return ChangedTablets(number, [each.held() for each in replicas], sorted(gone))

    def notify(self, changed: Callable[[], None]) -> None:
        """See `HoldsTablets`."""
        self._changed = changed

    def tell(self, tablet: str) -> None:
        """Something about a replica is to be reported."""
        with self._lock:
            self._tell(tablet)
        self._changed()

    def _tell(self, tablet: str) -> None:
        self._number += 1
        self._news[tablet] = self._number

    def rotten(self) -> int:
        """Files whose bytes are not those that came."""
        # No lock, as in `replica`.
        return sum(each.rotten_count for each in list(self._replicas.values()))

    def note_trouble(self, what: str, text: str | None) -> None:
        """Something does not go on, or does again (None)."""
        with self._lock:
            if text is not None and self.troubles.get(what) != text:
                log.warning("copies are held up", extra={"what": what, "error": text})
            if text is None:
                self.troubles.pop(what, None)
            else:
                self.troubles[what] = text

    def _forget_trouble(self, tablet: str) -> None:
        for what in [each for each in self.troubles if each.startswith(tablet)]:
            del self.troubles[what]

    # -- whose word counts -------------------------------------------------------------------

    def hear(self, master: MasterMark) -> None:
        """See that a master is the one of this node.

        It is not noted as heard: answers overtake each other, and only those to heartbeats come in
        their order.

        Raises:
            DoubtedMasterError: it is another engine's, or an earlier life of it.
        """
        seen = self._home.seen
        if seen is None:
            return
        if (seen.engine, seen.incarnation) != (master.engine, master.incarnation) and (
            seen.engine != master.engine or master.incarnation < seen.incarnation
        ):
            raise DoubtedMasterError(
                f"engine {master.engine} answers, incarnation {master.incarnation}; this node is "
                f"of {seen.engine}, incarnation {seen.incarnation}"
            )

    def must_be_noted(self, master: MasterMark) -> None:
        """See that this life of the master was heard by a heartbeat, and is noted.

        What a node has is then of that life, or of one that it has heard before: so no power cut
        leaves files here of which nobody knows what they are to be held against. A master that is
        doubted may bring something all the same, as it takes nothing away: what is noted stays what
        it is held against, until an operator confirms it.

        Raises:
            DoubtedMasterError: see `hear`.
            UnheardMasterError: it was not.
        """
        self.hear(master)
        seen = self._home.seen
        if seen is not None and seen.life != master.life and not self._home.doubt:
            raise UnheardMasterError(
                "this life of the master was not heard by a heartbeat yet", retry_after=1.0
            )

    def _must_be_trusted(self, master: MasterMark, replica: TabletReplica | None) -> None:
        self.must_be_noted(master)
        if self._home.doubt:
            raise DoubtedMasterError(f"nothing is taken away here: {self._home.doubt}")
        if replica is not None and master.commit < replica.newest():
            raise DoubtedMasterError(
                f"tablet {replica.tablet}: commit {replica.newest()} is known here, and the "
                f"master's newest was {master.commit}"
            )

    # -- the start ---------------------------------------------------------------------------

    def _open_all(self) -> None:
        found = {
            name for tree in self._trees for name, _ in tree.listing(TABLETS) if _TABLET.match(name)
        }
        for tablet in sorted(found):
            replica = self._new(tablet)
            replica.open()
            if replica.is_there:
                self._replicas[tablet] = replica
                for number in replica.rotten_in():
                    self.note_failure(number)


def _check_order(order: CopyOrder) -> None:
    if not _TABLET.match(order.tablet) or order.generation < 1 or not order.begin < order.end:
        raise ProtocolError(f"{order} is no order for a replica")
