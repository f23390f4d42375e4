"""The calls of storage nodes to their master, and those of operators about them."""

from __future__ import annotations

from flask import Response

from receiver.heartbeats.node_wire import NodeHeartbeat, NodeHeartbeatAnswer
from receiver.operator.places.remote_nodes import (
    accept_node,
    declare_node_found,
    list_remote_nodes,
    show_remote_node,
    unknown_tablets,
)
from receiver.operator.views.remote_node_views import (
    RemoteNodesPage,
    RemoteNodeView,
    UnknownTablets,
)
from receiver.web.call import Call, json_answer
from receiver.web.routes import (
    EMPTY,
    PAGE_AFTER,
    PAGE_LIMIT,
    AnswerRow,
    Body,
    Role,
    Routes,
)

__all__ = ["ROUTES"]

ROUTES = Routes()
_ONE = "/v1/nodes/remote/<node>"


@ROUTES.call(
    "POST",
    "/v1/nodes/heartbeat",
    Role.NODE,
    "A storage node says that it lives, who it is, and what it holds",
    AnswerRow(200, NodeHeartbeatAnswer),
    takes=NodeHeartbeat,
    body=Body.LARGE,
)
def node_heartbeat(call: Call) -> Response:
    """A sign of life of a storage node."""
    call.who.must_keep()
    return json_answer(call.node.nodes.heartbeat(call.body(NodeHeartbeat)))


@ROUTES.call(
    "GET",
    "/v1/nodes/remote",
    Role.OPERATOR,
    "Storage nodes that are processes, by uuid",
    AnswerRow(200, RemoteNodesPage),
    parameters=(PAGE_AFTER, PAGE_LIMIT),
    reads=True,
)
def remote_nodes(call: Call) -> Response:
    """Storage nodes that are processes."""
    page = list_remote_nodes(call.looked_at, after=call.query("after"), limit=call.limit())
    return json_answer(page)


@ROUTES.call(
    "GET",
    _ONE,
    Role.OPERATOR,
    "One of them, by its uuid or name",
    AnswerRow(200, RemoteNodeView),
    reads=True,
)
def remote_node(call: Call) -> Response:
    """One of them."""
    return json_answer(show_remote_node(call.looked_at, call.arguments["node"]))


@ROUTES.call(
    "GET",
    f"{_ONE}/unknown",
    Role.OPERATOR,
    "Tablets that a storage node holds and the catalogue does not have",
    AnswerRow(200, UnknownTablets),
    parameters=(PAGE_AFTER, PAGE_LIMIT),
    reads=True,
)
def unknown_at_node(call: Call) -> Response:
    """What it holds that nobody knows."""
    page = unknown_tablets(
        call.looked_at, call.arguments["node"], after=call.query("after"), limit=call.limit()
    )
    return json_answer(page)


@ROUTES.call(
    "POST",
    "/v1/nodes/<node>/found",
    Role.OPERATOR,
    "Say that a storage node that was declared lost is there after all",
    EMPTY,
)
def remote_node_found(call: Call) -> Response:
    """It is there."""
    declare_node_found(call.operator, call.arguments["node"])
    return Response(status=204)


@ROUTES.call(
    "POST",
    "/v1/nodes/<node>/accept",
    Role.OPERATOR,
    "Let the next start of a storage node go on, of whatever copy of its directory",
    EMPTY,
)
def accept_remote_node(call: Call) -> Response:
    """Let its next start go on."""
    accept_node(call.operator, call.arguments["node"])
    return Response(status=204)
