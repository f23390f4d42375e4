"""The calls of operators, `/v1`: what `tsferry-receiver` asks a running server."""

from __future__ import annotations

from flask import Response
from msgspec.structs import asdict, replace

from receiver.operator.edges.tokens import list_tokens, make_token
from receiver.operator.edges.tokens import revoke_token as revoke
from receiver.operator.namespace.schema import import_into
from receiver.operator.status import running_status
from receiver.operator.stored.storage import running_storage
from receiver.operator.views import wire
from receiver.operator.views.status_views import StatusView, StorageView
from receiver.operator.views.token_views import TokenMade
from receiver.web.call import Call, json_answer
from receiver.web.routes import EMPTY, AnswerRow, Body, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()


@ROUTES.call(
    "GET",
    "/v1/status",
    Role.OPERATOR,
    "How the receiver is",
    AnswerRow(200, StatusView),
    reads=True,
    displaced=True,
)
def status(call: Call) -> Response:
    """How the receiver is."""
    view = running_status(call.looked_at, call.answering.problem())
    return json_answer(replace(view, follows=call.answering.follows()))


@ROUTES.call(
    "POST",
    "/v1/clock/confirm",
    Role.OPERATOR,
    "Confirm that the clock of the receiver's machine is right, so that timestamps follow it",
    AnswerRow(200, wire.ClockAnswer),
)
def confirm_clock(call: Call) -> Response:
    """The clock is right."""
    return json_answer(wire.ClockAnswer(was_doubted=call.operator.engine.confirm_clock()))


@ROUTES.call(
    "POST",
    "/v1/ttl/resume",
    Role.OPERATOR,
    "The older word for /v1/clock/confirm",
    AnswerRow(200, wire.TtlAnswer),
)
def resume_ttl(call: Call) -> Response:
    """The older word for the call above."""
    return json_answer(wire.TtlAnswer(was_suspended=call.operator.engine.confirm_clock()))


@ROUTES.call(
    "POST",
    "/v1/schema/import",
    Role.OPERATOR,
    "Make storage groups and series that are missing, with aliases and tags",
    AnswerRow(200, wire.ImportAnswer),
    takes=wire.ImportRequest,
    body=Body.LARGE,
)
def import_schema(call: Call) -> Response:
    """Make storage groups and series."""
    request = call.body(wire.ImportRequest)
    return json_answer(import_into(call.operator.engine, request.items, dry_run=request.dry_run))


@ROUTES.call(
    "GET", "/v1/tokens", Role.OPERATOR, "All tokens", AnswerRow(200, wire.TokensAnswer), reads=True
)
def tokens(call: Call) -> Response:
    """All tokens, without their secrets."""
    return json_answer(wire.TokensAnswer(tokens=list_tokens(call.looked_at.engine)))


@ROUTES.call(
    "POST",
    "/v1/tokens",
    Role.OPERATOR,
    "Make a token; its text is in this answer and nowhere else",
    AnswerRow(201, TokenMade),
    takes=wire.TokenRequest,
)
def create_token(call: Call) -> Response:
    """Make a token."""
    asked = call.body(wire.TokenRequest)
    made = make_token(call.operator.engine, **asdict(asked))
    call.audited(asked, token=made.id)
    return json_answer(made, 201)


@ROUTES.call(
    "DELETE", "/v1/tokens/<token>", Role.OPERATOR, "Make a token worthless from now on", EMPTY
)
def revoke_token(call: Call) -> Response:
    """Make a token worthless."""
    revoke(call.operator.engine, call.arguments["token"])
    return Response(status=204)


@ROUTES.call(
    "GET",
    "/v1/storage",
    Role.OPERATOR,
    "How far the copies in the object store are",
    AnswerRow(200, StorageView),
    reads=True,
)
def storage(call: Call) -> Response:
    """How far the copies are."""
    return json_answer(running_storage(call.looked_at))
