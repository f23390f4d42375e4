"""What one sender and one receiver have between them, for the life of a process."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

import common
from common import wire
from common.bandwidth import Bandwidth
from common.boot import boot_id
from common.config import Timetable
from common.durable import Lock, Tree
from common.errors import StoppedError, TsferryError
from common.terminal import printable
from sender.config import ReceiverEntry, SenderConfig
from sender.kept import identity
from sender.kept.receiver_file import Receiver
from sender.select.known_digests import KnownDigests
from sender.select.scan import Scanner
from sender.send.backoff import Backoff, Tries, retrying
from sender.send.body_compression import BodyCompression
from sender.send.calls import Client
from sender.send.node_lines import NodeLines
from sender.send.transport import Endpoint

__all__ = ["Remote"]

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass
class Remote:
    """One receiver, and how this process speaks to it.

    Attributes:
        config: of the sender.
        entry: of the receiver.
        uuid: of this sender.
        stop: set when the process is to end.
        scanner: scans for this receiver; what it read from files it remembers.
        bandwidth: the line's budget, one for all rounds.
        client: the calls.
        clock: seconds since the epoch, as this machine has it: the receiver is told.
        digests: of files that were read whole, for this receiver or another.
        nodes: storage nodes that large files may go to; None where they may not.
    """

    config: SenderConfig
    entry: ReceiverEntry
    uuid: str
    stop: threading.Event
    scanner: Scanner
    bandwidth: Bandwidth
    client: Client
    clock: Callable[[], float] = time.time
    digests: KnownDigests = field(default_factory=KnownDigests)
    nodes: NodeLines | None = None

    @classmethod
    def make(
        cls,
        config: SenderConfig,
        entry: ReceiverEntry,
        uuid: str,
        stop: threading.Event,
        *,
        digests: KnownDigests | None = None,
    ) -> Remote:
        """A remote with its own connections; nothing is contacted yet."""
        bandwidth = Bandwidth(config.transfer.bandwidth_limit, sleep=stop.wait)
        client = Client(
            endpoint(config, entry, uuid),
            bandwidth=bandwidth,
            compression=BodyCompression(config.transfer.compression, bandwidth),
        )
        return cls(
            config,
            entry,
            uuid,
            stop,
            Scanner(config),
            bandwidth,
            client,
            digests=digests or KnownDigests(),
            nodes=_node_lines(config, entry, uuid, bandwidth) if entry.nodes else None,
        )

    @property
    def name(self) -> str:
        """What logs and reports call the receiver."""
        return self.entry.name

    @property
    def label(self) -> str:
        """What this edge is called, shown to the operators of a receiver."""
        return self.config.label or printable(socket.gethostname())[:200]

    @property
    def directory(self) -> str:
        """`<host>_<port>`, the name of its directories here."""
        return self.entry.directory

    @property
    def tries(self) -> Tries:
        """How often and how fast to try again."""
        transfer = self.config.transfer
        backoff = Backoff(transfer.retry_first, transfer.retry_max)
        return Tries(transfer.max_retries, backoff, self.stop.wait, self._tell)

    def _tell(self, what: str, error: TsferryError, pause: float) -> None:
        _log.warning(
            "%s: another try in %.1f s: %s", self.name, pause, error.message, extra={"what": what}
        )

    def patiently(self, call: Callable[[], T], *, retries: int | None = None) -> T:
        """A call that may be repeated, tried again while that may help."""
        if self.stop.is_set():
            raise StoppedError("told to stop")
        tries = self.tries
        return retrying(
            call,
            retries=tries.retries if retries is None else retries,
            backoff=tries.backoff,
            sleep=tries.sleep,
            tell=lambda error, pause: tries.tell("", error, pause),
        )

    def lock(self) -> Lock:
        """Be the one sender to this receiver until the lock is released or the process ends."""
        return identity.take_lock(self.config.schema_dir, self.directory)

    def sync_tree(self) -> Tree:
        """`<schema dir>/sync`, open."""
        return identity.open_sync_dir(self.config.schema_dir)

    def heartbeat_client(self) -> Client:
        """A client of its own for the thread that says that we live."""
        return Client(endpoint(self.config, self.entry, self.uuid), bandwidth=_unlimited(self.stop))

    def source_client(self) -> Client:
        """Reads the catalogue of the receiver on this node (`source = "receiver"`)."""
        assert self.entry.source_url is not None
        transfer = self.config.transfer
        source = Endpoint(
            self.entry.source_url,
            token=self.entry.source_token,
            insecure=self.entry.insecure,
            connect_timeout=transfer.connect_timeout,
            read_timeout=transfer.read_timeout,
        )
        return Client(source, bandwidth=_unlimited(self.stop))

    def check_request(self, known: Receiver, last_look: int) -> wire.CheckRequest:
        """The first call of a round, from what is remembered of the receiver."""
        return wire.CheckRequest(
            protocol=wire.PROTOCOL,
            version=common.__version__,
            sender=self.uuid,
            label=self.label,
            partition_interval_ms=self.config.partition_interval_ms,
            time_unit=self.config.time_unit,
            engine=known.engine,
            epoch=known.epoch,
            last_task=known.last_task,
            newest_commit=known.newest_commit,
            look=last_look,
            clock=self.clock(),
            machine=boot_id(),
        )

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
        if self.nodes is not None:
            self.nodes.close()


def _node_lines(
    config: SenderConfig, entry: ReceiverEntry, uuid: str, bandwidth: Bandwidth
) -> NodeLines:
    like = endpoint(config, entry, uuid)
    ca_file = entry.nodes_ca_file or entry.ca_file
    return NodeLines(
        msgspec.structs.replace(like, token=None, ca_file=ca_file),
        bandwidth,
        lambda: BodyCompression(config.transfer.compression, bandwidth),
    )


def endpoint(config: SenderConfig, entry: ReceiverEntry, uuid: str) -> Endpoint:
    """A receiver's address as the configuration has it."""
    return Endpoint(
        entry.url,
        uuid,
        entry.token,
        entry.ca_file,
        entry.insecure,
        entry.use_env_proxies,
        config.transfer.connect_timeout,
        config.transfer.read_timeout,
        entry.client_cert,
        entry.client_key,
    )


def _unlimited(stop: threading.Event) -> Bandwidth:
    return Bandwidth(Timetable(), sleep=stop.wait)
