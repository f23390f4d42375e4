"""A storage node without a server or threads, with all that it has on its disks: `HomedNode`.

Its home, its directories with their markers, its replicas, and its talk with masters are the real
ones. It is stopped, starts anew, is copied, and gets older copies of its directories back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from common.errors import NotTheWriterError, Transient, TsferryError, UnreachableError
from receiver.config import LimitsConfig
from receiver.heartbeats.node_wire import (
    DirectoryRoom,
    NodeHeartbeatAnswer,
    NodeRegistration,
)
from receiver.storage.reading.several_addresses import Failover
from receiver.storagenode.heartbeat_talk import HeartbeatTalk
from receiver.storagenode.node_directories import NodeDirectories
from receiver.storagenode.node_home import NodeHome
from receiver.storagenode.staged_uploads import StagedUploads
from receiver.storagenode.upload_door import UploadDoor
from receiver.tablet_copies.copies_wire import (
    CopyNews,
    CopyPage,
    CopySource,
    GoneAsked,
    GoneSaid,
    HeldCopies,
    HeldCopy,
    KeptFiles,
    ProofAsked,
)
from receiver.tablet_copies.copy_puller import CopyPuller
from receiver.tablet_copies.held_proofs import give_proof
from receiver.tablet_copies.read_tickets import TicketKeys
from receiver.tablet_copies.replica_directory import TABLETS
from receiver.tablet_copies.replica_store import ReplicaStore

if TYPE_CHECKING:
    from tests.support.two_masters import OneOfTwo, TwoMasters

__all__ = ["HomedNode", "OneThread"]

T = TypeVar("T")
_ROOM = 1 << 40


class OneThread(Executor):
    """Does what it is given in the thread that gives it: lives that are played alike are alike."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


class HomedNode:
    """A node that goes to whichever leads.

    Attributes:
        host: its machine.
        free: bytes that its disks have room for.
        refused: why the master that it heard last takes nothing of it; empty if it does.
        late: what it has said of complete copies, and has not arrived yet, while `is_slow`.
        said: the last of that which was heard.
        is_off_by: seconds that its clock is ahead.
        lies: it gives other bytes than lie on its disk.
        on_answer: called with the master whose answer is about to arrive.
    """

    def __init__(self, centre: TwoMasters, host: str, *, of: HomedNode | None = None) -> None:
        self.centre, self.host = centre, host
        self.url = f"http://{host}"
        self.root = centre.root / host
        self.leads = Failover(centre.masters)
        self.free = _ROOM
        self.is_up = self.is_slow = self.lies = False
        self.is_off_by = 0.0
        self.on_answer: Callable[[OneOfTwo], None] = lambda _: None
        self.refused = ""
        self.late: list[HeldCopies] = []
        self.said: HeldCopies | None = None
        self.disks = ["disk0"]
        if of is not None:
            shutil.copytree(of.root, self.root)
            self.disks = list(of.disks)
        self.start()

    @property
    def paths(self) -> list[Path]:
        """Directories that are there."""
        return [self.root / each for each in self.disks]

    def tablets_in(self, path: Path) -> list[Path]:
        """Where replicas lie in a directory."""
        below = path / TABLETS
        return [below / each for each in os.listdir(below)] if below.is_dir() else []

    def tablets_in_use(self) -> int:
        """How many replicas it has."""
        return len(self.store.tablets()) if self.is_up else 0

    # -- lives -------------------------------------------------------------------------------

    def start(self) -> None:
        self.home = NodeHome.open(
            self.root / "home", monotonic=self.centre.monotonic, random=self.centre.ident
        )
        self.uuid = self.home.start.uuid
        self.directories = NodeDirectories.open(self.paths, self.uuid, self.home.directories)
        self.home.note_directories(self.directories.uuids)
        trees = [each.tree for each in self.directories.disks if each.tree is not None]
        self.store = ReplicaStore(
            trees, self.home, free=lambda _: self.free, monotonic=self.centre.monotonic
        )
        self.home.has_files_of(self.store.newest())
        self.talk = HeartbeatTalk(
            self.home, self.store, self._registration, self._rooms, newest=self.store.newest
        )
        self.keys = TicketKeys(self.centre.monotonic)
        self.talk.listeners.append(self._take_key)
        self.door = UploadDoor(self.uuid, self.keys, self.store)
        self.uploads = StagedUploads(
            trees, self.store, LimitsConfig(), clock=lambda: self.centre.wall() + self.is_off_by
        )
        seen = 0 if self.home.seen is None else self.home.seen.commit
        life = "" if self.home.seen is None else self.home.seen.life
        self.puller = CopyPuller(
            self.store, self, seen=seen, life=life, parallel=1, staged=self.uploads
        )
        self.puller._pool = OneThread()  # type: ignore[assignment]
        self.is_up = True

    def _take_key(self, answer: NodeHeartbeatAnswer) -> None:
        if answer.ticket_key is not None:
            self.keys.take(answer.ticket_key)

    def stop(self, *, power: bool = False) -> None:
        """End; a power cut notes nothing."""
        if self.is_up:
            self.puller.close()
            if power:
                self.home._mark = self.home._mark.__class__(
                    **{
                        each: getattr(self.home._mark, each)
                        for each in self.home._mark.__struct_fields__
                        if each != "seen"
                    },
                    seen=self.home._noted,
                )
            self.home.close()
            self.directories.close()
        self.is_up = False
        self.late.clear()

    def burn(self) -> None:
        """All its disks are gone; the next start has a new one, at another path."""
        self.stop()
        for path in self.paths:
            shutil.rmtree(path)
        self.disks = [f"disk{len(list(self.root.glob('*'))) + self.home.start.instance}"]
        self.start()

    def saved(self, place: Path) -> None:
        """Have a copy of what is on its disks, and of who it is."""
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.root, place)

    def restored(self, place: Path, *, home: bool) -> None:
        """It starts anew with older disks; with an older home too, or as who it is."""
        self.stop()
        for each in self.root.iterdir():
            if home or each.name != "home":
                shutil.rmtree(each)
        for each in place.iterdir():
            if home or each.name != "home":
                shutil.copytree(each, self.root / each.name)
        self.disks = sorted(each.name for each in self.root.iterdir() if each.name != "home")
        self.start()

    def confirm_master(self) -> None:
        """See `StorageNode`."""
        self.home.must_doubt()
        self.store.keep_unlisted()
        self.home.confirm()
        self.puller.look_anew()

    # -- what it says ------------------------------------------------------------------------

    def _registration(self) -> NodeRegistration:
        return NodeRegistration(
            url=self.url,
            name=self.host,
            host=self.host,
            directories=tuple(self._rooms()),
            call_key="k" * 64,
            before=self.home.before,
        )

    def _rooms(self) -> Sequence[DirectoryRoom]:
        return [
            DirectoryRoom(
                path=str(each.path),
                uuid=each.uuid,
                capacity=_ROOM,
                free=self.free if each.tree is not None else 0,
                problem=each.problem(),
                begun=each.tree is not None,
            )
            for each in self.directories.disks
        ]

    def _ask(self, call: Callable[[OneOfTwo], T]) -> T:
        def of(master: OneOfTwo) -> T:
            if not self.centre.may_speak(master.name, self.host):
                raise UnreachableError(f"{master.name} does not answer")
            found = master.answer(lambda: call(master))
            self.on_answer(master)
            return found

        return self.leads.ask(of)

    def report(self) -> None:
        """Heartbeats, until there is nothing more to say.

        Raises:
            TsferryError: nobody hears them.
        """
        more: float | None = 0.0
        while more is not None:
            try:
                # What a master says that leads no more is not heard.
                more = self.talk.answered(self._ask(lambda it: it.hear(self.talk.next())))
            except (NotTheWriterError, Transient):
                raise
            except TsferryError as error:
                self.refused = error.message
                self.talk.begin_anew()
                raise
            self.refused = ""

    def goes_on(self) -> bool:
        """A report, a look at what is new, and a report; whether a master heard the last."""
        is_heard = False
        if self.is_up:
            self.uploads.expire_now_and_then()
        for step in (self.report, self.puller.run_once, self.report):
            if not self.is_up:
                return False
            try:
                step()
            except TsferryError:
                is_heard = False
                continue
            is_heard = True
        return is_heard

    def news(self, after: int) -> CopyNews:
        return self._ask(lambda master: master.copies.lists.news(self.uuid, after))

    def page(self, tablet: str, after: str | None, digest: str, since: int) -> CopyPage:
        return self._ask(lambda it: it.copies.lists.page(self.uuid, tablet, after, digest, since))

    def gone(self, tablet: str, asked: GoneAsked) -> GoneSaid:
        return self._ask(lambda master: master.copies.lists.gone(self.uuid, tablet, asked))

    def held(self, copies: Sequence[HeldCopy]) -> None:
        said = HeldCopies(start=self.home.start, copies=list(copies))
        if self.is_slow:  # it gives up, and says it once more
            self.late.append(said)
            raise UnreachableError("no answer in time")
        self._ask(lambda master: master.copies.held(said))
        self.said = said

    def arrive(self) -> None:
        """What was late arrives, the newest first."""
        for said in self.late[::-1]:
            try:
                self._ask(lambda master, said=said: master.copies.held(said))  # type: ignore[misc]
            except TsferryError:
                continue
        self.late.clear()

    # -- bytes -------------------------------------------------------------------------------

    def content(self, physical: str, begin: int, length: int) -> bytes:
        return self._ask(lambda master: master.content(physical, begin, length))

    def content_of(
        self, source: CopySource, tablet: str, physical: str, begin: int, length: int
    ) -> bytes:
        return self._other(source).read(tablet, physical, begin, length)

    def doubt(self, source: CopySource, tablet: str, physical: str) -> None:
        self._other(source).read_again(tablet, physical)

    def _other(self, source: CopySource) -> HomedNode:
        for other in self.centre.nodes:
            is_there = other.is_up and self.centre.may_speak(self.host, other.host)
            if other.url == source.url and is_there:
                return other
        raise UnreachableError(f"{source.url} does not answer")

    def read(self, tablet: str, physical: str, begin: int, length: int) -> bytes:
        """What it gives."""
        found = self._on_disk(tablet, physical, begin, length)
        return found[:-1] + bytes((found[-1] ^ 1,)) if self.lies and found else found

    def _on_disk(self, tablet: str, physical: str, begin: int, length: int) -> bytes:
        fd, _ = self.store.replica(tablet).open_file(physical)
        try:
            return os.pread(fd, length, begin)
        finally:
            os.close(fd)

    def proof(self, asked: ProofAsked) -> str:
        found = give_proof(self.store, asked, self.home.start.boot).digest
        return found[::-1] if self.lies else found

    def read_again(self, tablet: str, physical: str) -> None:
        """It judges by its own disk, as its scrub does."""
        replica = self.store.replica(tablet)
        file = replica.files().get(physical)
        if file is None:
            return
        import hashlib

        found = self._on_disk(tablet, physical, 0, file.size + 1)
        if hashlib.md5(found).hexdigest() != file.md5:
            replica.rot(physical, file)

    def kept(self, tablet: str, after: str | None) -> KeptFiles:
        replica = self.store.replica(tablet)
        order = replica.order
        assert order is not None
        return KeptFiles(
            table=order.table,
            attributes=replica.attributes,
            files=tuple(file for _, file in sorted(replica.files().items())),
        )
