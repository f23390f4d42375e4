"""Pulls what a node is to have: asks the master what is new, fetches files, lets go of others.

The master is asked every second for the tablets of this node that something happened to. Of each
the list of files is read; it is not sent where the digest of what is here is that of the list. A
file comes from the node that the master names as having it, else from the master, in ranges, and is
checked before it counts. Once all of a list is here the replica is complete as of the commit that
the list is of; what is on no list goes when the master says so.
"""

from __future__ import annotations

import errno
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

from common import crash
from common.durable import Closing
from common.errors import (
    DigestError,
    NoSpaceError,
    NotFoundError,
    ProtocolError,
    StoppedError,
    TsferryError,
)
from common.threads import PeriodicThread
from receiver.tablet_copies.copies_wire import GoneAsked, HeldCopy
from receiver.tablet_copies.unplaced_replicas import judge_unplaced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from receiver.heartbeats.node_wire import MasterMark
    from receiver.tablet_copies.copies_wire import (
        CopiedFile,
        CopyNews,
        CopyPage,
        CopySource,
        GoneSaid,
        TabletNews,
    )
    from receiver.tablet_copies.replica_store import ReplicaStore
    from receiver.tablet_copies.tablet_replica import TabletReplica

__all__ = ["CopyCalls", "CopyPuller", "OffersFiles"]

log = logging.getLogger(__name__)

_OF_THE_DISK: Final = (errno.EIO, errno.EROFS)
_RANGE: Final = 8 << 20
"""Bytes that are asked for at once."""
_EVERY: Final = 1.0
"""Seconds between two questions."""
_LONGEST: Final = 30.0
"""Seconds at most until a master that does not answer is asked again."""
_GONE_AT_ONCE: Final = 1000
_TOLD_AT_ONCE: Final = 100


class CopyCalls(Protocol):
    """What the puller asks others; raises errors of the common tree."""

    def news(self, after: int) -> CopyNews:
        """See `CopyNews`."""

    def page(self, tablet: str, after: str | None, digest: str, since: int) -> CopyPage:
        """See `CopyPage`.

        Args:
            tablet: which one.
            after: `next` of the page before.
            digest: of what is here; empty for none.
            since: what is here is complete as of this commit; 0 for never.
        """

    def gone(self, tablet: str, asked: GoneAsked) -> GoneSaid:
        """See `GoneAsked`."""

    def held(self, copies: Sequence[HeldCopy]) -> None:
        """See `HeldCopies`."""

    def content(self, physical: str, begin: int, length: int) -> bytes:
        """Bytes of a loaded file, from the master; perhaps fewer than asked for."""

    def content_of(
        self, source: CopySource, tablet: str, physical: str, begin: int, length: int
    ) -> bytes:
        """The same from another node."""

    def doubt(self, source: CopySource, tablet: str, physical: str) -> None:
        """Another node gave other bytes than a file has: it is told so."""


class OffersFiles(Protocol):
    """Who has files already that an edge has sent to this node."""

    def offered(self, file: CopiedFile) -> AbstractContextManager[tuple[int, str] | None]:
        """Number of the directory and name of a file that is what is listed, or None.

        It may be given another name meanwhile, and is the taker's then.
        """

    def let_go(self, file: CopiedFile) -> None:
        """A file is in its replica: what an edge has begun to send of it is good for nothing."""

    def expire_now_and_then(self) -> None:
        """Drop what nobody came for in a long time; it is called often."""


class CopyPuller(Closing):
    """Pulls, in a thread of its own once it is started.

    Attributes:
        behind: tablets that are not known to be complete, and the newest commit of the master that
            had been heard of when that began, with the life that it was heard in.
    """

    def __init__(
        self,
        store: ReplicaStore,
        calls: CopyCalls,
        *,
        seen: int = 0,
        life: str = "",
        parallel: int = 4,
        staged: OffersFiles | None = None,
    ) -> None:
        """Prepare.

        Args:
            store: what is here.
            calls: the master, and other nodes.
            seen: the newest commit of the master that an earlier life of the node has heard of.
            life: of the master then.
            parallel: files on their way at once.
            staged: files that need not be pulled.
        """
        self._store = store
        self._calls = calls
        self._staged = staged
        self._seen = life, seen
        self._after, self._process = 0, ""
        self.behind: dict[str, tuple[str, int]] = {}
        self._untold: dict[str, None] = {}
        self._orders: dict[str, TabletNews] = {}
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="pull")
        self._anew = threading.Event()
        self._pause = _EVERY
        self._thread = PeriodicThread(
            "puller", self._ask_again, log, "copies are not pulled", retry=_LONGEST
        )

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def wake(self) -> None:
        """Ask now."""
        self._thread.wake()

    def look_anew(self) -> None:
        """Ask for all lists now."""
        self._anew.set()
        self._thread.wake()

    def close(self) -> None:
        """Ask no more; a file that is coming comes to its end, or is left."""
        self._thread.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _ask_again(self) -> float:
        self._expire()
        try:
            self.run_once()
        except (TsferryError, OSError) as error:
            self._store.note_trouble("master", str(error))
            self._pause = min(self._pause * 2, _LONGEST)
        except Exception as error:
            self._store.note_trouble("master", f"{type(error).__name__}: {error}")
            raise
        else:
            self._store.note_trouble("master", None)
            self._pause = _EVERY
        return self._pause

    def _expire(self) -> None:
        if self._staged is None:
            return
        try:
            self._staged.expire_now_and_then()
        except (TsferryError, OSError) as error:
            log.warning("what edges left here stays", extra={"reason": str(error)})

    def run_once(self) -> int:
        """Ask what is new, and pull all that is behind; how many tablets are behind still.

        Raises:
            TsferryError: the master does not answer, or its word does not count here.
        """
        is_anew = self._anew.is_set()
        news = self._calls.news(0 if is_anew else self._after)
        if is_anew:
            self._anew.clear()
        self._store.must_be_noted(news.master)
        if news.life != self._process and self._after and not is_anew:
            news = self._calls.news(0)  # it knows nothing of what is here
            self._store.must_be_noted(news.master)
        self._process = news.life
        self._orders.update((each.tablet, each) for each in news.tablets)
        self._make(news.master)
        here = set(self._store.tablets())
        for each in news.tablets:
            self.behind.setdefault(each.tablet, self._seen)
        self._after = news.master.commit
        self._seen = news.master.life, news.master.commit
        for tablet in [*self.behind]:
            if self._thread.stopping.is_set():
                break
            if tablet in self._orders:
                continue
            if tablet not in here or self._pull(tablet, self.behind[tablet]):
                del self.behind[tablet]
                self._untold[tablet] = None
            if len(self._untold) >= _TOLD_AT_ONCE:
                self._tell()
        self._tell()
        waiting = self.behind.keys() | self._orders.keys()
        judge_unplaced(self._store, self._calls, here - waiting)
        return len(self.behind)

    def _make(self, master: MasterMark) -> None:
        """Make replicas; one that cannot be made is tried again, and keeps nothing else waiting."""
        for tablet, order in [*self._orders.items()]:
            try:
                self._store.make([order], master)
            except (NoSpaceError, OSError) as error:
                self._store.note_trouble(tablet, str(error))
            else:
                del self._orders[tablet]

    def _tell(self) -> None:
        """Tell what is complete; what is not heard is told again."""
        told = [*self._untold]
        copies = [each for tablet in told for each in self._complete(tablet)]
        if copies:
            self._calls.held(copies)
        for tablet in told:
            del self._untold[tablet]

    def _complete(self, tablet: str) -> list[HeldCopy]:
        try:
            replica = self._store.replica(tablet)
        except NotFoundError:
            return []
        held = replica.held()
        if held.state == "damaged":
            return []  # since it was complete: it is told when it is that again
        return [
            HeldCopy(
                tablet=tablet,
                generation=held.generation,
                commit=replica.commit,
                digest=held.digest,
                life=replica.life,
            )
        ]

    # -- a tablet ----------------------------------------------------------------------------

    def _pull(self, tablet: str, seen: tuple[str, int]) -> bool:
        try:
            replica = self._store.replica(tablet)
        except NotFoundError:
            return True  # it was dropped; if it is wanted, that is news again
        try:
            complete = self._pull_list(replica, seen)
        except NotFoundError:
            return True  # it is not to be here any more
        except (TsferryError, OSError) as error:
            self._store.note_trouble(tablet, str(error))
            replica.is_behind = True
            self._store.tell(tablet)
            return False
        if complete:
            self._store.note_trouble(tablet, None)
        self._store.tell(tablet)
        return complete

    def _pull_list(self, replica: TabletReplica, seen: tuple[str, int]) -> bool:
        losses, is_damaged = replica.losses, bool(replica.missing())
        since = 0 if is_damaged or replica.is_unlisted else replica.commit  # of all that is here
        digest = "" if is_damaged else replica.digest()
        page = self._calls.page(replica.tablet, None, digest, since)
        self._store.must_be_noted(page.master)
        if page.is_delta and page.master.life != replica.life:
            # Its commit of that number may be another one than what is here is complete as of.
            page = self._calls.page(replica.tablet, None, digest, 0)
            self._store.must_be_noted(page.master)
        commit, is_delta, life = page.commit, page.is_delta, page.master.life
        if not page.same:
            listed: set[str] = set()
            problems: list[str] = []
            while True:
                listed.update(each.physical for each in page.files)
                problems += self._pull_page(replica, page)
                if page.next is None or self._thread.stopping.is_set():
                    break
                behind = page.next
                page = self._calls.page(replica.tablet, behind, "", 0)
                self._store.must_be_noted(page.master)  # another one may go on with it
                if page.next is not None and page.next <= behind:
                    raise ProtocolError(f"the list of {replica.tablet} does not go on: {behind}")
            if page.next is not None or problems:
                replica.is_behind = True
                if problems:
                    self._store.note_trouble(replica.tablet, problems[0])
                return False
            here = replica.rotten() | replica.files()
            over = set(page.ended) & here.keys() if is_delta else here.keys() - listed
            if not self._let_go(replica, sorted(over), commit, seen):
                is_delta = True  # a newer list has the rest
        if not is_delta:
            replica.set_unlisted(False)
        if not replica.completed(commit, losses, life):
            return False
        crash.point("copies.complete")
        return True

    def _pull_page(self, replica: TabletReplica, page: CopyPage) -> list[str]:
        """Have all of a page; why what does not come does not."""
        here = replica.files()
        life = page.master.life
        replica.note([each for each in page.files if each.physical in here], life)
        wanted = [each for each in page.files if each.physical not in here]
        if wanted:
            replica.is_behind = True
        sources = [*([page.source] if page.source else ()), *page.others]
        asked = [self._pool.submit(self._fetch, replica, each, sources, life) for each in wanted]
        found = (each.result() for each in asked)
        return [why for why in found if why is not None]

    def _fetch(
        self, replica: TabletReplica, file: CopiedFile, sources: Sequence[CopySource], life: str
    ) -> str | None:
        if self._staged is not None and self._take_staged(replica, file, self._staged, life):
            return None
        if self._is_unnamed(replica, file, life):
            return None
        why = self._pulled(replica, file, sources, life)
        if why is None and self._staged is not None:
            self._staged.let_go(file)
        return why

    def _pulled(
        self, replica: TabletReplica, file: CopiedFile, sources: Sequence[CopySource], life: str
    ) -> str | None:
        for source in sources:
            if file.commit > source.commit:
                continue
            why = self._fetch_from(replica, file, source, life)
            if why is None:
                return None
            log.info("a copy does not come from a node", extra={"file": file.physical, "why": why})
        return self._fetch_from(replica, file, None, life)

    def _is_unnamed(self, replica: TabletReplica, file: CopiedFile, life: str) -> bool:
        try:
            return replica.take_unnamed(file, life)
        except (TsferryError, OSError) as error:
            told = {"file": file.physical, "error": str(error)}
            log.warning("a file that lies here is pulled", extra=told)
            return False

    def _take_staged(
        self, replica: TabletReplica, file: CopiedFile, staged: OffersFiles, life: str
    ) -> bool:
        """Have a file that an edge has sent here; whether that was so."""
        try:
            with staged.offered(file) as there:
                return there is not None and replica.adopt(*there, file, life)
        except (TsferryError, OSError) as error:
            log.warning(
                "a file that was sent here is pulled",
                extra={"file": file.physical, "error": str(error)},
            )
            return False

    def _fetch_from(
        self, replica: TabletReplica, file: CopiedFile, source: CopySource | None, life: str
    ) -> str | None:
        try:
            number = self._store.place(file.size)
            try:
                replica.receive(number, file, self._blocks(replica.tablet, file, source), life)
            except OSError as error:
                if error.errno in _OF_THE_DISK:
                    self._store.note_failure(number)
                raise
            except DigestError:
                if source is not None:
                    self._calls.doubt(source, replica.tablet, file.physical)
                raise
            finally:
                self._store.placed(number, file.size)
        except (TsferryError, OSError) as error:
            return f"{file.physical}: {error}"
        return None

    def _blocks(self, tablet: str, file: CopiedFile, source: CopySource | None) -> Iterator[bytes]:
        at = 0
        while at < file.size:
            if self._thread.stopping.is_set():
                raise StoppedError("told to stop")
            length = min(_RANGE, file.size - at)
            if source is None:
                block = self._calls.content(file.physical, at, length)
            else:
                block = self._calls.content_of(source, tablet, file.physical, at, length)
            if not 0 < len(block) <= length:
                raise ProtocolError(f"{len(block)} bytes of {length} came of {file.physical}")
            yield block
            at += len(block)

    def _let_go(
        self, replica: TabletReplica, names: Sequence[str], commit: int, seen: tuple[str, int]
    ) -> bool:
        """Let go of what is on no list: only of what the master knows to be gone.

        Returns:
            whether it was asked about all of that.
        """
        here, kept = replica.rotten() | replica.files(), set(replica.kept())
        # What is here may be of a master that an operator has given up: each file is to tell.
        life, heard = ("", 0) if replica.is_unlisted else seen
        every = [(name, here[name].commit) for name in names if name not in kept]
        over = [each for each in every if each[1] <= commit]  # what is newer is on a newer list
        for begin in range(0, len(over), _GONE_AT_ONCE):
            some = over[begin : begin + _GONE_AT_ONCE]
            asked = GoneAsked(
                generation=replica.generation,
                commit=commit,
                seen=heard,
                files=some,
                life=life,
                lives=replica.lives(name for name, _ in some),
            )
            said = self._calls.gone(replica.tablet, asked)
            replica.keep(_among(said.unknown, {name for name, _ in some}))
            names = _among(said.files, {name for name, _ in some})
            self._store.remove(replica.tablet, said.generation, names, said.master)
        strange = replica.kept()
        text = f"files that the master does not know: {len(strange)}, as {''.join(strange[:1])}"
        self._store.note_trouble(f"{replica.tablet} unknown", text if strange else None)
        return len(over) == len(every)


def _among(said: Sequence[str], asked: set[str]) -> list[str]:
    strange = [each for each in said if each not in asked]
    if strange:
        raise ProtocolError(f"{strange[0]!a} is to go, and was not asked about")
    return list(said)
