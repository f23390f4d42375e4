"""The masters that a node may speak to, one after another: the first one that is a master hears it.

They are those of the configuration. Where one that is none says that another is, its word is no
reason to carry a token there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from common import wire
from common.errors import NotTheWriterError, Transient
from receiver.heartbeats.node_wire import NodeHeartbeatAnswer
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.storage.reading.several_addresses import Failover
from receiver.storagenode.node_home import ForeignMasterError, ReplacedMasterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.network.client_certificate import ClientCertificate
    from receiver.heartbeats.node_wire import NodeHeartbeat

__all__ = ["HEARTBEAT", "HearsNodes", "MasterCalls", "Masters"]

HEARTBEAT: Final = "/v1/nodes/heartbeat"
_TIMEOUT: Final = (5.0, 10.0)
"""Seconds to connect and to answer: one that hangs is to be passed over before the others call this
node down."""
_ELSEWHERE: Final = (NotTheWriterError, Transient, ForeignMasterError, ReplacedMasterError)
"""What another one may say otherwise."""


class HearsNodes(Protocol):
    """A master, or somebody who was one.

    Attributes:
        url: where it is.
    """

    url: str

    def heartbeat(self, said: NodeHeartbeat) -> NodeHeartbeatAnswer:
        """Say something; raises as it is refused."""
        ...


class MasterCalls:
    """Calls to a receiver over HTTP; see `HearsNodes`."""

    def __init__(
        self,
        url: str,
        token: str | None,
        ca_cert: str | None,
        certificate: ClientCertificate | None = None,
    ) -> None:
        """Ask nothing yet.

        Raises:
            UsageError: the token would travel where others can read it.
        """
        self.url = url
        self._calls = ReaderCalls(
            url,
            token=token,
            ca_cert=ca_cert,
            certificate=certificate,
            what="node.master",
            timeout=_TIMEOUT,
            within=sum(_TIMEOUT),
        )

    def heartbeat(self, said: NodeHeartbeat) -> NodeHeartbeatAnswer:
        """Say something.

        Raises:
            UnreachableError: nobody answers.
            TsferryError: as the master refused it.
        """
        answer = self._calls.post(HEARTBEAT, {}, wire.encode(said))
        return wire.decode(answer.body, NodeHeartbeatAnswer, f"answer to {HEARTBEAT}")

    def close(self) -> None:
        """Let go of connections."""
        self._calls.close()


class Masters:
    """Those of the configuration; for one thread."""

    def __init__(self, masters: Sequence[HearsNodes]) -> None:
        """Begin with the first.

        Args:
            masters: one at least.
        """
        self._masters = Failover(masters, _ELSEWHERE)

    @property
    def url(self) -> str:
        """Where the one is that is spoken to."""
        return self._masters.current.url

    def say(
        self,
        said: Callable[[], NodeHeartbeat],
        hear: Callable[[NodeHeartbeatAnswer], float | None],
    ) -> float | None:
        """Say something to the one that heard the last, or to the others in turn.

        Args:
            said: makes what is said.
            hear: hears the answer.

        Returns:
            what `hear` returned.

        Raises:
            TsferryError: as one refused it; all were asked that another may answer for.
        """
        return self._masters.ask(lambda master: hear(master.heartbeat(said())))
