"""The calls about storage nodes: where files lie, and what operators say of these places."""

from __future__ import annotations

from flask import Response

from receiver.operator.places.forgetting_nodes import forget_node
from receiver.operator.places.node_lists import drain_node, list_nodes, undrain_node
from receiver.operator.places.node_losses import lose_node
from receiver.operator.views.node_views import LossRequest, LossView, NodesPage, NodeView
from receiver.web.call import Call, json_answer
from receiver.web.routes import EMPTY, AnswerRow, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()


@ROUTES.call(
    "GET",
    "/v1/nodes",
    Role.OPERATOR,
    "Places that files lie at: data directories of the receiver, and processes that keep files",
    AnswerRow(200, NodesPage),
    reads=True,
)
def storage_nodes(call: Call) -> Response:
    """Places that files lie at."""
    return json_answer(list_nodes(call.looked_at))


@ROUTES.call(
    "POST",
    "/v1/nodes/<node>/drain",
    Role.OPERATOR,
    "Have nothing new come to a node, and what is there move away",
    AnswerRow(200, NodeView),
)
def drain(call: Call) -> Response:
    """Have a node become empty."""
    return json_answer(drain_node(call.operator, call.arguments["node"]))


@ROUTES.call(
    "POST",
    "/v1/nodes/<node>/undrain",
    Role.OPERATOR,
    "Have files come to a node again",
    AnswerRow(200, NodeView),
)
def undrain(call: Call) -> Response:
    """Have files come to a node again."""
    return json_answer(undrain_node(call.operator, call.arguments["node"]))


@ROUTES.call(
    "POST",
    "/v1/nodes/<node>/lost",
    Role.OPERATOR,
    "Say that what lies at a node is gone for good; without `confirm` only what is lost is told",
    AnswerRow(200, LossView),
    takes=LossRequest,
)
def lose(call: Call) -> Response:
    """Say that what lies at a node is gone for good."""
    return json_answer(lose_node(call.operator, call.arguments["node"], call.body(LossRequest)))


@ROUTES.call(
    "POST",
    "/v1/nodes/<node>/forget",
    Role.OPERATOR,
    "Take the row of a node away that is empty or lost, and out of the configuration",
    EMPTY,
)
def forget(call: Call) -> Response:
    """Take the row of a node away."""
    forget_node(call.operator, call.arguments["node"])
    return Response(status=204)
