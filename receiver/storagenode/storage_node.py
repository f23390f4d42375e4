"""A storage node as one object: it opens its directories, counts its start, and speaks to a master.

Nothing here knows of HTTP. What it holds is its store's matter (`HoldsTablets`); what is here says
who it is, that it lives, and whom it obeys.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import common
from common.durable import Closing, failed_sync
from common.errors import ConfigError
from common.network.client_certificate import ClientCertificate
from receiver.heartbeats.node_wire import NodeRegistration
from receiver.storage.reading.open_stores import opened_at
from receiver.storage.reading.stored_place import StoreAddress
from receiver.storagenode.bucket_cache import BucketCache
from receiver.storagenode.copy_requests import CopyRequests
from receiver.storagenode.directory_watch import DirectoryWatch
from receiver.storagenode.disk_blocks import DiskBlocks
from receiver.storagenode.heartbeat_talk import HeartbeatTalk
from receiver.storagenode.heartbeats_thread import HeartbeatsThread
from receiver.storagenode.master_calls import MasterCalls, Masters
from receiver.storagenode.node_directories import NodeDirectories
from receiver.storagenode.node_home import NodeHome
from receiver.storagenode.node_status import CacheStatus, NodeStatus
from receiver.storagenode.prompt_store import PromptStore, SilentStoreError
from receiver.storagenode.staged_uploads import StagedUploads
from receiver.storagenode.upload_door import UploadDoor
from receiver.tablet_copies.copy_puller import CopyPuller
from receiver.tablet_copies.copy_scrub import CopyScrub
from receiver.tablet_copies.read_tickets import TicketKeys
from receiver.tablet_copies.replica_store import ReplicaStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from receiver.config import NodeConfig, ReceiverConfig
    from receiver.heartbeats.node_wire import NodeHeartbeatAnswer, ReportedTablet

__all__ = ["CallCounter", "StorageNode"]

_MACHINE: Final = Path("/etc/machine-id")
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104  # what an address is compared with


class CallCounter:
    """How many calls are worked on now; any thread may count."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        """One more, or one less."""
        with self._lock:
            self.count += number


class StorageNode(Closing):
    """See the module; opened by `open`, heard from `begin` on.

    Attributes:
        config: as it was opened with.
        home: who it is, and what it has seen of its master.
        directories: of its data.
        watch: looks at them.
        copies: the replicas that it holds.
        pulls: brings what they lack.
        scrub: reads them through.
        uploads: what edges send, until it is in a replica.
        cache: what it keeps of the object store for others; None for nothing.
        slots: the version of the cache slots that it has heard of.
        door: whom the master lets send what.
        tickets: the keys by which it knows whom the master sends.
        call_key: the master's calls to it carry this.
        working: calls that are worked on.
    """

    def __init__(
        self,
        config: ReceiverConfig,
        home: NodeHome,
        directories: NodeDirectories,
        watch: DirectoryWatch,
        copies: ReplicaStore,
        uploads: StagedUploads,
        clock: Callable[[], float],
    ) -> None:
        self.config = config
        self.home = home
        self.directories = directories
        self.watch = watch
        self.copies = copies
        self.uploads = uploads
        self.cache: BucketCache | None = None
        self.slots = 0
        self.tickets = TicketKeys()
        self.door = UploadDoor(home.start.uuid, self.tickets, copies)
        self.call_key = secrets.token_hex(32)
        self.working = CallCounter()
        self._started = clock()
        self._asking = threading.Lock()
        self._prompt = PromptStore(copies)
        self._told: Sequence[ReportedTablet] = ()
        self._url = ""
        self._resources = ExitStack()
        token = None if config.node.token is None else config.node.token.reveal()
        ca_cert = _path(config.node.ca_cert)
        shown = _certificate(config.node)
        calls = [MasterCalls(url, token, ca_cert, shown) for url in config.node.master]
        for each in calls:
            self._resources.callback(each.close)
        self._talk = HeartbeatTalk(
            home,
            PromptStore(copies),
            self._registration,
            watch.rooms,
            lambda: self.working.count,
            copies.newest,
        )
        self._talk.listeners.append(self._take_key)
        self._heartbeats = HeartbeatsThread(self._talk, Masters(calls), every=config.node.heartbeat)
        self._resources.callback(self._heartbeats.close)
        copies.notify(self._heartbeats.changed)
        asks = CopyRequests(
            config.node.master,
            lambda: home.start,
            token=token,
            ca_cert=ca_cert,
            certificate=shown,
        )
        self._resources.callback(asks.close)
        seen = 0 if home.seen is None else home.seen.commit  # before a master is heard
        life = "" if home.seen is None else home.seen.life
        self.pulls = CopyPuller(copies, asks, seen=seen, life=life, staged=uploads)
        self._resources.callback(self.pulls.close)
        self.scrub = CopyScrub(
            copies,
            config.schema_dir,
            every=config.node.scrub_every,
            rate=config.node.scrub_rate,
            is_there=directories.has,
        )
        self._resources.callback(self.scrub.close)

    @classmethod
    def open(cls, config: ReceiverConfig, *, clock: Callable[[], float] = time.time) -> Self:
        """Open its directories, and count this start; nobody hears of it before `begin`.

        Args:
            config: with `node.master`.
            clock: seconds since the epoch, for people.

        Raises:
            ConfigError: its directory holds something else, or nobody could tell where it is.
            LockedError: another process has it open.
            DamagedError: its directory cannot be read.
            UsageError: its token would travel where others can read it.
        """
        if config.node.url is None and config.listen.host in _EVERYWHERE:
            raise ConfigError(
                f"node.url: missing: on listen.host {config.listen.host} a master cannot tell "
                "where this node is called"
            )
        with ExitStack() as stack:
            home = stack.enter_context(NodeHome.open(config.schema_dir, monotonic=time.monotonic))
            directories = stack.enter_context(
                NodeDirectories.open(config.data_dirs, home.start.uuid, home.directories)
            )
            home.note_directories(directories.uuids)
            trees = [each.tree for each in directories.disks if each.tree is not None]
            watch = stack.enter_context(DirectoryWatch(directories.disks))
            copies = ReplicaStore(
                trees, home, keep_free=config.limits.min_free_bytes, free=watch.free
            )
            home.has_files_of(copies.newest())
            uploads = StagedUploads(trees, copies, config.limits, clock=clock)
            node = cls(config, home, directories, watch, copies, uploads, clock)
            if config.node.cache and config.node.cache_dir is not None:
                node.cache = stack.enter_context(_kept_of_store(config))
            stack.push(node._resources.pop_all())
            node._resources = stack.pop_all()
        return node

    def begin(self, url: str) -> None:
        """Speak to the master from now on: calls are taken.

        Args:
            url: where the server listens.
        """
        self._url = self.config.node.url or url
        self.watch.begin()
        self._heartbeats.begin()
        self.pulls.start()
        self.scrub.start()

    def _take_key(self, answer: NodeHeartbeatAnswer) -> None:
        self.slots = answer.slots
        if answer.ticket_key is not None:
            self.tickets.take(answer.ticket_key)

    def problem(self) -> str | None:
        """Why it is of no use now (`/readyz`), None if it is."""
        found = failed_sync() or self._heartbeats.problem()
        if found is not None:
            return found
        away = [each for each in self.watch.rooms() if each.problem]
        if len(away) == len(self.directories.disks):
            return f"no data directory is there: {away[0].path}: {away[0].problem}"
        return None

    def concerns(self) -> list[str]:
        """What is not as it should be, in numbers."""
        found = []
        away = sum(bool(each.problem) for each in self.watch.rooms())
        if away:
            found.append(f"{away} of its data directories are away.")
        if self.home.doubt:
            found.append("It does not trust its master: see its status.")
        if rotten := self.copies.rotten():
            found.append(f"Files that have rotted, and wait for another copy: {rotten}.")
        if self.cache is not None and self.cache.blocks.problem:
            found.append(f"Nothing more of the object store is kept: {self.cache.blocks.problem}.")
        if self.copies.troubles:
            found.append(f"Copies are held up: {len(self.copies.troubles)}; see its status.")
        return found

    def confirm_master(self) -> None:
        """Take the master as it is; an operator says so. The next heartbeat tells where it stands.

        Raises:
            ConflictError: there is nothing to confirm.
        """
        self.home.must_doubt()  # else all that is here waited for lists that nobody asks for
        try:
            self.copies.keep_unlisted()
            self.home.confirm()
        finally:
            self.pulls.look_anew()
        self._heartbeats.changed()

    def status(self) -> NodeStatus:
        """How it is, for its operator."""
        seen = self.home.seen
        held = self._held()
        staged = self.uploads.standing()
        age = self._heartbeats.age
        return NodeStatus(
            node=self.home.start.uuid,
            instance=self.home.start.instance,
            version=common.__version__,
            url=self._url,
            masters=self.config.node.master,
            engine="" if seen is None else seen.engine,
            incarnation=0 if seen is None else seen.incarnation,
            commit=0 if seen is None else seen.commit,
            heard=None if age is None else round(age, 3),
            problem=self.problem(),
            concerns=tuple(self.concerns()),
            doubt=self.home.doubt,
            started=self._started,
            tablets=len(held),
            files=sum(each.files for each in held),
            bytes=sum(each.size for each in held),
            directories=tuple(self.watch.rooms()),
            uploads=staged.uploads,
            whole_uploads=staged.whole,
            upload_bytes=staged.bytes,
            behind=len(self.pulls.behind),
            rotten=self.copies.rotten(),
            scrubbed=self.scrub.place.last,
            cache=self._kept(),
            troubles=tuple(f"{at}: {why}" for at, why in sorted(self.copies.troubles.items())),
        )

    def _kept(self) -> CacheStatus | None:
        cache = self.cache
        if cache is None:
            return None
        return CacheStatus(
            capacity=cache.blocks.capacity,
            used=cache.blocks.used,
            blocks=len(cache.blocks),
            rotten=cache.blocks.rotten,
            slots=self.slots,
            from_disk=cache.from_disk,
            from_nodes=cache.from_nodes,
            from_store=cache.from_store,
            requests=cache.requests,
        )

    def _held(self) -> Sequence[ReportedTablet]:
        """What it holds; what it held when that was last told, while a disk hangs."""
        with self._asking, suppress(SilentStoreError):
            self._told = self._prompt.held().tablets
        return self._told

    def _registration(self) -> NodeRegistration:
        return NodeRegistration(
            url=self._url,
            name=(self.config.node.name or "")[:255],
            version=common.__version__,
            host=(self.config.node.host or _host())[:255],
            directories=tuple(self.watch.rooms()),
            call_key=self.call_key,
            before=self.home.before,
            cache=0 if self.cache is None else self.cache.blocks.capacity,
        )

    def close(self) -> None:
        """Fall silent, and let go of the directories; closing twice is harmless."""
        self._resources.close()


def _kept_of_store(config: ReceiverConfig) -> BucketCache:
    """What is kept of the store that a configuration has."""
    assert config.node.cache_dir is not None
    address = StoreAddress.of(config.storage)
    assert address is not None  # `ReceiverConfig.check`
    blocks = DiskBlocks(
        config.node.cache_dir,
        config.node.cache_bytes,
        keep_free=config.limits.min_free_bytes,
    )
    return BucketCache(blocks, lambda: opened_at(address), ca_cert=_path(config.node.ca_cert))


def _certificate(node: NodeConfig) -> ClientCertificate | None:
    if node.client_cert is None or node.client_key is None:
        return None
    keys = ("node.client_cert", "node.client_key")
    return ClientCertificate(node.client_cert, node.client_key, node.ca_cert, keys)


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _host() -> str:
    """What tells this machine from others; its own id stays here."""
    try:
        known = _MACHINE.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        known = ""
    return hashlib.sha256(f"tsferry host {known or socket.gethostname()}".encode()).hexdigest()[:32]
