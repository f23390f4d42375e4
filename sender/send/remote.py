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
from common.boot import boot_id
from common.config import Timetable
from common.console.terminal import printable
from common.durable import Lock, Tree
from common.errors import ConflictError, StoppedError, TsferryError
from common.network.bandwidth import Bandwidth
from sender.config import ReceiverEntry, SenderConfig
from sender.kept import identity
from sender.kept.receiver_file import Receiver
from sender.select.known_digests import KnownDigests
from sender.select.scan import Scanner
from sender.send.calls import Client
from sender.send.catalogue_calls import CatalogueCalls
from sender.send.connection.addresses import Addresses
from sender.send.connection.backoff import Backoff, Tries, retrying
from sender.send.connection.body_compression import BodyCompression
from sender.send.connection.transport import Endpoint
from sender.send.sent_bytes.node_lines import NodeLines

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
        addresses: of the receiver, and which one answers.
        client: the calls, to that one; another from the check of a round on.
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
    addresses: Addresses
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
        client = _client(config, entry, uuid, bandwidth, entry.url)
        return cls(
            config,
            entry,
            uuid,
            stop,
            Scanner(config),
            bandwidth,
            client,
            Addresses(entry.addresses),
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
        said = {"what": what} if what else {}
        _log.warning("%s: another try in %.1f s: %s", self.name, pause, error.message, extra=said)

    def go_on(self) -> None:
        """Whether to go on; asked between steps that may be long.

        Raises:
            StoppedError: told to stop.
        """
        if self.stop.is_set():
            raise StoppedError("told to stop")

    def patiently(self, call: Callable[[], T]) -> T:
        """A call that may be repeated, tried again while that may help."""
        self.go_on()
        tries = self.tries
        return retrying(
            call,
            retries=tries.retries,
            backoff=tries.backoff,
            sleep=tries.sleep,
            tell=lambda error, pause: tries.tell("", error, pause),
        )

    def check(self, request: wire.CheckRequest, *, anybody: bool = False) -> wire.CheckAnswer:
        """Ask the receiver who it is, at the address that answers; later calls go there, too.

        Args:
            request: from what is remembered of it.
            anybody: whether it may be another one than is remembered, at one of several addresses.

        Raises:
            ConflictError: it is, and may not.
            TsferryError: no address answers, or as the receiver refuses.
        """
        client, answer = self.addresses.asked(lambda url: self._checked(url, request, anybody))
        self._speak_to(client)
        return answer

    def _checked(
        self, url: str, request: wire.CheckRequest, anybody: bool
    ) -> tuple[Client, wire.CheckAnswer]:
        here = url == self.client.endpoint.url
        client = self.client if here else self._client(url)
        try:
            answer = client.check(request)
            self._refuse_another(url, request.engine, answer.engine, anybody)
        except TsferryError:
            if not here:
                client.close()
            raise
        return client, answer

    def _refuse_another(self, url: str, known: str | None, engine: str, anybody: bool) -> None:
        # Of a single address another engine is a centre that was made anew; of several it is one
        # that does not belong to them, and the list would go from one to the other and back.
        if self.addresses.are_several and not anybody and known not in (None, engine):
            raise ConflictError(
                f"{url} is engine {engine}, and {self.name} is engine {known}: url and "
                "standby_urls are to be receivers over the same keys of etcd; if it was made anew, "
                "say so with sync --accept-receiver"
            )

    def prefer(self, known: Receiver) -> None:
        """Begin with the address that answered last, as it is remembered."""
        self.addresses.prefer(known.address)
        if self.client.endpoint.url != self.addresses.now:
            self._speak_to(self._client(self.addresses.now))

    def _speak_to(self, client: Client) -> None:
        if client is not self.client:
            _log.info("%s: is spoken to at %s", self.name, client.endpoint.url)
            before, self.client = self.client, client
            before.close()

    def _client(self, url: str) -> Client:
        return _client(self.config, self.entry, self.uuid, self.bandwidth, url)

    def lock(self) -> Lock:
        """Be the one sender to this receiver until the lock is released or the process ends."""
        return identity.take_lock(self.config.schema_dir, self.directory)

    def sync_tree(self) -> Tree:
        """`<schema dir>/sync`, open."""
        return identity.open_sync_dir(self.config.schema_dir)

    def heartbeat_client(self) -> Client:
        """A client of its own for the thread that says that we live."""
        there = endpoint(self.config, self.entry, self.uuid, self.addresses.now)
        return Client(there, bandwidth=_unlimited(self.stop))

    def source_client(self) -> CatalogueCalls:
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
        return CatalogueCalls(source, bandwidth=_unlimited(self.stop))

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
    like = endpoint(config, entry, uuid, entry.url)
    ca_file = entry.nodes_ca_file or entry.ca_file
    return NodeLines(
        msgspec.structs.replace(like, token=None, ca_file=ca_file),
        bandwidth,
        lambda: BodyCompression(config.transfer.compression, bandwidth),
    )


def _client(
    config: SenderConfig, entry: ReceiverEntry, uuid: str, bandwidth: Bandwidth, url: str
) -> Client:
    return Client(
        endpoint(config, entry, uuid, url),
        bandwidth=bandwidth,
        compression=BodyCompression(config.transfer.compression, bandwidth),
    )


def endpoint(config: SenderConfig, entry: ReceiverEntry, uuid: str, url: str) -> Endpoint:
    """One of a receiver's addresses, and how the configuration has it spoken to."""
    return Endpoint(
        url,
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
