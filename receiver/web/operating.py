"""The calls of operators, `/v1`: what `tsferry-receiver` asks a running server."""

from __future__ import annotations

from flask import Response

from common.errors import UsageError
from common.wire import SchemaFailure
from receiver.load.upkeep.verdicts import Verdict
from receiver.operator import views, wire
from receiver.web.call import Call, json_answer
from receiver.web.routes import EMPTY, Answer, Body, Parameter, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()
_STATES = ("live", "retired", "quarantined", "deleted", "expired")
_SENDER = Parameter("sender", "query", {"type": "string"}, "Only of the sender with this uuid.")
_STATE = Parameter("state", "query", {"enum": list(_STATES)}, "Only files in this state.")
_UNVERIFIED = Parameter(
    "unverified", "query", {"enum": ["true", "false"]}, "Only files that are not verified."
)
_AFTER = Parameter("after", "query", {"type": "string"}, "`next` of the page before.")
_LIMIT = Parameter("limit", "query", {"type": "integer", "minimum": 1}, "Entries of a page.")


@ROUTES.call(
    "GET", "/v1/status", Role.OPERATOR, "How the receiver is", Answer(200, views.StatusView)
)
def status(call: Call) -> Response:
    """How the receiver is."""
    return json_answer(call.node.status(call.who))


@ROUTES.call("GET", "/v1/senders", Role.OPERATOR, "All senders", Answer(200, wire.SendersAnswer))
def senders(call: Call) -> Response:
    """All senders."""
    return json_answer(wire.SendersAnswer(senders=call.node.senders(call.who)))


@ROUTES.call(
    "POST",
    "/v1/senders/<sender>/accept",
    Role.OPERATOR,
    "Let the next machine that comes under this uuid go on, whatever epoch it has",
    EMPTY,
)
def accept_sender(call: Call) -> Response:
    """Let the next machine under this uuid go on."""
    call.node.accept_sender(call.who, call.arguments["sender"])
    return Response(status=204)


@ROUTES.call(
    "GET",
    "/v1/files",
    Role.OPERATOR,
    "Rows of the catalogue, in order of their physical paths",
    Answer(200, views.FilesPage),
    parameters=(_SENDER, _STATE, _UNVERIFIED, _AFTER, _LIMIT),
)
def files(call: Call) -> Response:
    """Rows of the catalogue."""
    state = call.query("state")
    if state is not None and state not in _STATES:
        raise UsageError(f"state: expected one of {', '.join(_STATES)}")
    unverified = call.query("unverified")
    if unverified not in (None, "true", "false"):
        raise UsageError("unverified: expected true or false")
    page = call.node.files(
        call.who,
        sender=call.query("sender"),
        state=state,
        unverified=unverified == "true",
        after=call.query("after"),
        limit=call.limit(call.site.config.limits.max_page_items),
    )
    return json_answer(page)


@ROUTES.call(
    "GET",
    "/v1/owners",
    Role.OPERATOR,
    "Devices and who owns them",
    Answer(200, views.OwnersPage),
    parameters=(_SENDER, _AFTER, _LIMIT),
)
def owners(call: Call) -> Response:
    """Devices and who owns them."""
    page = call.node.owners(
        call.who,
        sender=call.query("sender"),
        after=call.query("after"),
        limit=call.limit(call.site.config.limits.max_page_items),
    )
    return json_answer(page)


@ROUTES.call(
    "POST",
    "/v1/owners/release",
    Role.OPERATOR,
    "Free a device for whoever comes first",
    Answer(200, wire.CommitAnswer),
    takes=wire.ReleaseRequest,
)
def release_owner(call: Call) -> Response:
    """Free a device."""
    request = call.body(wire.ReleaseRequest)
    return json_answer(wire.CommitAnswer(commit=call.node.release_owner(call.who, request.device)))


@ROUTES.call(
    "POST",
    "/v1/owners/transfer",
    Role.OPERATOR,
    "Give a device to another sender",
    Answer(200, wire.CommitAnswer),
    takes=wire.TransferRequest,
)
def transfer_owner(call: Call) -> Response:
    """Give a device to another sender."""
    request = call.body(wire.TransferRequest)
    commit = call.node.transfer_owner(call.who, request.device, request.sender)
    return json_answer(wire.CommitAnswer(commit=commit))


@ROUTES.call(
    "GET",
    "/v1/quarantine",
    Role.OPERATOR,
    "Files that were refused or found bad",
    Answer(200, wire.QuarantineAnswer),
    parameters=(_SENDER,),
)
def quarantine(call: Call) -> Response:
    """Files that were refused or found bad."""
    entries = call.node.quarantine_list(call.who, sender=call.query("sender"))
    return json_answer(wire.QuarantineAnswer(entries=entries))


@ROUTES.call(
    "POST",
    "/v1/quarantine/retry",
    Role.OPERATOR,
    "Look at a file again, or let the next round try",
    Answer(200, wire.RetryAnswer),
    takes=wire.QuarantineKey,
)
def quarantine_retry(call: Call) -> Response:
    """Look at a file again."""
    key = call.body(wire.QuarantineKey)
    result = call.node.quarantine_retry(call.who, key.sender, key.path, key.digest)
    return json_answer(wire.RetryAnswer(result=result))


@ROUTES.call(
    "POST",
    "/v1/quarantine/drop",
    Role.OPERATOR,
    "Forget a file and the bytes kept of it",
    EMPTY,
    takes=wire.QuarantineKey,
)
def quarantine_drop(call: Call) -> Response:
    """Forget a file."""
    key = call.body(wire.QuarantineKey)
    call.node.quarantine_drop(call.who, key.sender, key.path, key.digest)
    return Response(status=204)


@ROUTES.call(
    "POST",
    "/v1/verdicts",
    Role.OPERATOR,
    "Record what a verification found: proved files, and bad ones for quarantine",
    Answer(200, wire.VerdictsAnswer),
    takes=wire.VerdictsRequest,
    body=Body.LARGE,
)
def verdicts(call: Call) -> Response:
    """What a verification found."""
    request = call.body(wire.VerdictsRequest)
    found = [Verdict(each.physical, each.md5, each.bad, each.as_sent) for each in request.verdicts]
    recorded = call.node.record_verdicts(call.who, found)
    return json_answer(wire.VerdictsAnswer(**recorded._asdict()))


@ROUTES.call(
    "POST",
    "/v1/ttl/resume",
    Role.OPERATOR,
    "Confirm that the receiver's clock is right, so that files expire again",
    Answer(200, wire.TtlAnswer),
)
def resume_ttl(call: Call) -> Response:
    """The clock is right."""
    return json_answer(wire.TtlAnswer(was_suspended=call.node.resume_ttl(call.who)))


@ROUTES.call(
    "POST",
    "/v1/schema/import",
    Role.OPERATOR,
    "Make storage groups and series that are missing, with aliases and tags",
    Answer(200, wire.ImportAnswer),
    takes=wire.ImportRequest,
    body=Body.LARGE,
)
def import_schema(call: Call) -> Response:
    """Make storage groups and series."""
    request = call.body(wire.ImportRequest)
    done = call.node.import_schema(call.who, request.items, dry_run=request.dry_run)
    failed = [SchemaFailure(record=record, reason=why) for record, why in done.failed]
    answer = wire.ImportAnswer(applied=done.applied, changes=len(done.ops), failed=failed)
    return json_answer(answer)


@ROUTES.call("GET", "/v1/tokens", Role.OPERATOR, "All tokens", Answer(200, wire.TokensAnswer))
def tokens(call: Call) -> Response:
    """All tokens, without their secrets."""
    return json_answer(wire.TokensAnswer(tokens=call.node.token_list(call.who)))


@ROUTES.call(
    "POST",
    "/v1/tokens",
    Role.OPERATOR,
    "Make a token; its text is in this answer and nowhere else",
    Answer(201, views.TokenMade),
    takes=wire.TokenRequest,
)
def create_token(call: Call) -> Response:
    """Make a token."""
    request = call.body(wire.TokenRequest)
    made = call.node.token_create(
        call.who,
        request.role,
        sender=request.sender,
        scope=request.scope,
        note=request.note,
        expires=request.expires,
    )
    return json_answer(made, 201)


@ROUTES.call(
    "DELETE", "/v1/tokens/<token>", Role.OPERATOR, "Make a token worthless from now on", EMPTY
)
def revoke_token(call: Call) -> Response:
    """Make a token worthless."""
    call.node.token_revoke(call.who, call.arguments["token"])
    return Response(status=204)
