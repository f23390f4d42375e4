"""The calls of a storage node: a table of its own, since it has no engine and no tokens.

Who may come in: whoever an address lets in, for calls that say nothing of what is held; the master,
by the key of this start that the node has told it; the operator of this machine, by the token of
the day.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from flask import Request, Response

from common import wire
from receiver.storagenode.node_status import NODE_STATUS
from receiver.web.call import json_answer
from receiver.web.handlers.health import Health
from receiver.web.problems import problem_response

if TYPE_CHECKING:
    from receiver.storagenode.storage_node import StorageNode

__all__ = [
    "BLOCK_BODY",
    "NODE_ROUTES",
    "NodeCall",
    "NodeCallRole",
    "NodeHandler",
    "NodeRoute",
    "NodeRoutes",
]


BLOCK_BODY: Final = -1
"""As the bytes of a body: as many as a block of a file may have, `limits.max_chunk_bytes`."""


class NodeCallRole(Enum):
    """Who may make a call."""

    PUBLIC = "anybody who may connect"
    MASTER = "the master of the node"
    OPERATOR = "the operator of the node's machine"
    TICKET = "whoever has a ticket of the master, which the call looks at"


@dataclass(frozen=True)
class NodeCall:
    """A call that was let in.

    Attributes:
        node: that is asked.
        request: Flask's.
        arguments: the variable parts of the path.
    """

    node: StorageNode
    request: Request
    arguments: Mapping[str, str]


NodeHandler = Callable[[NodeCall], Response]
"""Makes the answer of a call."""


@dataclass(frozen=True)
class NodeRoute:
    """One call.

    Attributes:
        method: HTTP method.
        path: the whole rule, as Flask writes it.
        role: who may call.
        handler: makes the answer.
        most: bytes that its body may have, or `BLOCK_BODY`.
    """

    method: str
    path: str
    role: NodeCallRole
    handler: NodeHandler
    most: int

    @property
    def name(self) -> str:
        """Of the handler."""
        return self.handler.__name__


class NodeRoutes(list[NodeRoute]):
    """The rows of a module, in the order in which its handlers stand."""

    def call(
        self, method: str, path: str, role: NodeCallRole, *, most: int = 1 << 16
    ) -> Callable[[NodeHandler], NodeHandler]:
        """Decorate the handler of a call with its row; see `NodeRoute`."""

        def enter(handler: NodeHandler) -> NodeHandler:
            self.append(NodeRoute(method, path, role, handler, most))
            return handler

        return enter


NODE_ROUTES = NodeRoutes()


@NODE_ROUTES.call("GET", "/healthz", NodeCallRole.PUBLIC)
def node_lives(call: NodeCall) -> Response:
    """The process answers."""
    concerns = call.node.concerns()
    if call.node.problem() is not None:
        concerns.insert(0, "it is not ready: `/readyz` says why")
    return json_answer(Health(status="degraded" if concerns else "ok", concerns=tuple(concerns)))


@NODE_ROUTES.call("GET", "/readyz", NodeCallRole.PUBLIC)
def node_is_ready(call: NodeCall) -> Response:
    """A master hears it, and it has a directory."""
    reason = call.node.problem()
    if reason is None:
        return node_lives(call)
    return problem_response(
        wire.Problem(
            type="urn:tsferry:not-ready",
            title="not ready",
            status=503,
            detail=reason,
            retry_after=10.0,
        )
    )


@NODE_ROUTES.call("GET", NODE_STATUS, NodeCallRole.OPERATOR)
def node_status(call: NodeCall) -> Response:
    """How it is."""
    return json_answer(call.node.status())


@NODE_ROUTES.call("POST", f"{NODE_STATUS}/confirm-master", NodeCallRole.OPERATOR)
def confirm_master(call: NodeCall) -> Response:
    """Take the master as it is."""
    call.node.confirm_master()
    return Response(status=204)


@NODE_ROUTES.call("GET", f"{NODE_STATUS}/start", NodeCallRole.MASTER)
def node_start(call: NodeCall) -> Response:
    """Which start of which node this is: what the master's key opens, and nobody else's."""
    return json_answer(call.node.home.start)
