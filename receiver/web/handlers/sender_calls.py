"""The calls of operators about senders, what they own, and what they delete."""

from __future__ import annotations

from flask import Response

from receiver.operator.edges.owners import adopt_sender, list_owners, set_owner
from receiver.operator.edges.senders import accept_all, all_senders, remove_sender, set_lateness
from receiver.operator.edges.senders import accept_sender as accept
from receiver.operator.stored.deletes import (
    allow_held_deletes,
    drop_held_deletes,
    list_held_deletes,
)
from receiver.operator.views import wire
from receiver.operator.views.token_views import OwnersPage
from receiver.web.call import Call, json_answer
from receiver.web.routes import EMPTY, OF_SENDER, PAGE_AFTER, PAGE_LIMIT, AnswerRow, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()


@ROUTES.call(
    "GET",
    "/v1/senders",
    Role.OPERATOR,
    "All senders",
    AnswerRow(200, wire.SendersAnswer),
    reads=True,
)
def senders(call: Call) -> Response:
    """All senders."""
    return json_answer(all_senders(call.looked_at))


@ROUTES.call(
    "POST",
    "/v1/senders/<sender>/accept",
    Role.OPERATOR,
    "Let the next machine that comes under this uuid go on, whatever epoch it has",
    EMPTY,
)
def accept_sender(call: Call) -> Response:
    """Let the next machine under this uuid go on."""
    accept(call.operator.engine, call.arguments["sender"])
    return Response(status=204)


@ROUTES.call(
    "GET",
    "/v1/owners",
    Role.OPERATOR,
    "Devices and who owns them",
    AnswerRow(200, OwnersPage),
    parameters=(OF_SENDER, PAGE_AFTER, PAGE_LIMIT),
    reads=True,
)
def owners(call: Call) -> Response:
    """Devices and who owns them."""
    page = list_owners(
        call.looked_at,
        sender=call.query("sender"),
        after=call.query("after"),
        limit=call.limit(),
    )
    return json_answer(page)


@ROUTES.call(
    "POST",
    "/v1/owners/release",
    Role.OPERATOR,
    "Free devices for whoever comes first",
    AnswerRow(200, wire.OwnersMoved),
    takes=wire.ReleaseRequest,
)
def release_owner(call: Call) -> Response:
    """Free a device."""
    request = call.body(wire.ReleaseRequest)
    return json_answer(set_owner(call.operator.engine, call.who, request.device, None))


@ROUTES.call(
    "POST",
    "/v1/owners/transfer",
    Role.OPERATOR,
    "Give devices to another sender",
    AnswerRow(200, wire.OwnersMoved),
    takes=wire.TransferRequest,
)
def transfer_owner(call: Call) -> Response:
    """Give a device to another sender."""
    request = call.body(wire.TransferRequest)
    return json_answer(set_owner(call.operator.engine, call.who, request.device, request.sender))


@ROUTES.call(
    "POST",
    "/v1/senders/accept",
    Role.OPERATOR,
    "The same for every sender",
    AnswerRow(200, wire.SendersAccepted),
)
def accept_senders(call: Call) -> Response:
    """Let every sender go on."""
    return json_answer(wire.SendersAccepted(senders=accept_all(call.operator.engine)))


@ROUTES.call(
    "POST",
    "/v1/senders/<sender>/remove",
    Role.OPERATOR,
    "Have a sender come no more; what it brought stays",
    AnswerRow(200, wire.SenderRemoved),
)
def remove(call: Call) -> Response:
    """Remove a sender."""
    return json_answer(remove_sender(call.operator, call.who, call.arguments["sender"]))


@ROUTES.call(
    "POST",
    "/v1/senders/<sender>/adopt",
    Role.OPERATOR,
    "Give all devices of a sender to another one, and end its files",
    AnswerRow(200, wire.OwnersMoved),
    takes=wire.AdoptRequest,
)
def adopt(call: Call) -> Response:
    """Give all devices of a sender to another one."""
    by = call.body(wire.AdoptRequest).by
    return json_answer(adopt_sender(call.operator.engine, call.who, call.arguments["sender"], by))


@ROUTES.call(
    "POST",
    "/v1/senders/<sender>/set",
    Role.OPERATOR,
    "Say after what silence a sender is late",
    EMPTY,
    takes=wire.SenderSettings,
)
def set_sender(call: Call) -> Response:
    """Say what is expected of a sender."""
    wanted = call.body(wire.SenderSettings)
    set_lateness(call.operator.engine, call.arguments["sender"], wanted.late_after)
    return Response(status=204)


@ROUTES.call(
    "GET",
    "/v1/deletes",
    Role.OPERATOR,
    "Deletes of senders that are held",
    AnswerRow(200, wire.HeldDeletesAnswer),
    reads=True,
)
def held_deletes(call: Call) -> Response:
    """Deletes that wait for an operator."""
    return json_answer(wire.HeldDeletesAnswer(lists=list_held_deletes(call.looked_at.engine)))


@ROUTES.call(
    "POST",
    "/v1/deletes/<digest>/allow",
    Role.OPERATOR,
    "Let a list of held deletes through",
    AnswerRow(200, wire.DeletesDecided),
)
def allow_deletes(call: Call) -> Response:
    """Let a list through."""
    commit = allow_held_deletes(call.operator.engine, call.arguments["digest"])
    return json_answer(wire.DeletesDecided(commit=commit))


@ROUTES.call(
    "POST",
    "/v1/deletes/<digest>/drop",
    Role.OPERATOR,
    "Keep what is on a list of held deletes",
    AnswerRow(200, wire.DeletesDecided),
)
def drop_deletes(call: Call) -> Response:
    """Keep what is on a list."""
    commit = drop_held_deletes(call.operator.engine, call.arguments["digest"])
    return json_answer(wire.DeletesDecided(commit=commit))
