"""The calls of operators, `/v1`: what `tsferry-receiver` asks a running server."""

from __future__ import annotations

from flask import Response
from msgspec.structs import asdict, replace

from common.errors import UsageError
from common.wire import FetchAnswer, FetchRequest
from receiver.load.upkeep.verdicts import BadMerge, Verdict, dissolve_bad
from receiver.metadata.sql.executing import moment
from receiver.operator import views, wire
from receiver.operator.deletes import allow_held_deletes, drop_held_deletes, list_held_deletes
from receiver.operator.files import FILE_STATES, delete_files, list_files, undelete_files
from receiver.operator.loaded_paths import allowed_path
from receiver.operator.lost import acknowledge_lost, list_lost
from receiver.operator.owners import adopt_sender, list_owners, set_owner
from receiver.operator.quarantine import drop_quarantined, list_quarantine, retry_quarantined
from receiver.operator.retired import GONE_STATES, drop_retired, list_retired, show_retired
from receiver.operator.retired_views import RetiredPage, RetiredView
from receiver.operator.schema import import_into
from receiver.operator.senders import (
    accept_all,
    all_senders,
    remove_sender,
    set_lateness,
)
from receiver.operator.senders import accept_sender as accept
from receiver.operator.status import running_status
from receiver.operator.storage import fetch_files, running_storage
from receiver.operator.tokens import list_tokens, make_token
from receiver.operator.tokens import revoke_token as revoke
from receiver.operator.tree import list_tree
from receiver.operator.tree_chunks import list_chunks
from receiver.operator.tree_views import ChunksPage, TreePage
from receiver.web.call import Call, json_answer
from receiver.web.routes import (
    EMPTY,
    PAGE_AFTER,
    PAGE_LIMIT,
    AnswerRow,
    Body,
    Parameter,
    Role,
    Routes,
)

__all__ = ["ROUTES"]

ROUTES = Routes()
_SENDER = Parameter("sender", "query", {"type": "string"}, "Only of the sender with this uuid.")
_STATE = Parameter("state", "query", {"enum": list(FILE_STATES)}, "Only files in this state.")
_UNVERIFIED = Parameter(
    "unverified", "query", {"enum": ["true", "false"]}, "Only files that are not verified."
)
_GONE = Parameter(
    "state", "query", {"enum": list(GONE_STATES)}, "Retired (if left out), or superseded."
)
_TREE = (
    Parameter("path", "query", {"type": "string"}, "Of a directory, or a file: what is there."),
    Parameter("at", "query", {"type": "string"}, "A commit timestamp, or a time; else now."),
    Parameter("files", "query", {"enum": ["true", "false"]}, "Files in place of directories."),
)
_LOAD_WAIT = 10
"""Seconds that an answer waits for the end of a work, unless less is asked for."""
_WAIT = Parameter(
    "wait",
    "query",
    {"type": "integer", "minimum": 0, "maximum": _LOAD_WAIT},
    f"Seconds that the end is waited for, at most; {_LOAD_WAIT} if left out.",
)
_PHYSICAL = Parameter("physical", "query", {"type": "string"}, "Its physical path.")


@ROUTES.call(
    "GET",
    "/v1/status",
    Role.OPERATOR,
    "How the receiver is",
    AnswerRow(200, views.StatusView),
    reads=True,
    displaced=True,
)
def status(call: Call) -> Response:
    """How the receiver is."""
    view = running_status(call.looked_at, call.answering.problem())
    return json_answer(replace(view, follows=call.answering.follows()))


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
    "/v1/files",
    Role.OPERATOR,
    "Rows of the catalogue, in order of their physical paths",
    AnswerRow(200, views.FilesPage),
    parameters=(_SENDER, _STATE, _UNVERIFIED, PAGE_AFTER, PAGE_LIMIT),
    reads=True,
)
def files(call: Call) -> Response:
    """Rows of the catalogue."""
    unverified = call.query("unverified")
    if unverified not in (None, "true", "false"):
        raise UsageError("unverified: expected true or false")
    page = list_files(
        call.looked_at,
        sender=call.query("sender"),
        state=call.query("state"),
        unverified=unverified == "true",
        after=call.query("after"),
        limit=call.limit(),
    )
    return json_answer(page)


@ROUTES.call(
    "GET",
    "/v1/tree",
    Role.OPERATOR,
    "The tree of files as it is or was: directories with their sums, or files",
    AnswerRow(200, TreePage),
    parameters=(*_TREE, PAGE_AFTER, PAGE_LIMIT),
    reads=True,
)
def tree(call: Call) -> Response:
    """The tree of files as it is or was."""
    files = call.query("files")
    if files not in (None, "true", "false"):
        raise UsageError("files: expected true or false")
    at = call.query("at")
    call.answering.reach(call.answering.engine.timestamp_at(moment(at)))
    page = list_tree(
        call.looked_at,
        path=call.query("path"),
        at=at,
        files=files == "true",
        after=call.query("after"),
        limit=call.limit(),
    )
    return json_answer(page)


@ROUTES.call(
    "GET",
    "/v1/tree/chunks",
    Role.OPERATOR,
    "The chunks of a file: where each lies, and its statistics",
    AnswerRow(200, ChunksPage),
    parameters=(*_TREE[:2], PAGE_AFTER, PAGE_LIMIT),
    reads=True,
)
def tree_chunks(call: Call) -> Response:
    """The chunks of a file."""
    at = call.query("at")
    call.answering.reach(call.answering.engine.timestamp_at(moment(at)))
    page = list_chunks(
        call.looked_at,
        path=call.query("path"),
        at=at,
        after=call.query("after"),
        limit=call.limit(),
    )
    return json_answer(page)


@ROUTES.call(
    "POST",
    "/v1/files/undelete",
    Role.OPERATOR,
    "Make deleted files visible again whose bytes still stand",
    AnswerRow(200, wire.UndeleteAnswer),
    takes=wire.UndeleteRequest,
    body=Body.LARGE,
)
def undelete(call: Call) -> Response:
    """Make deleted files visible again."""
    request = call.body(wire.UndeleteRequest)
    return json_answer(undelete_files(call.operator, request.physicals))


@ROUTES.call(
    "POST",
    "/v1/files/delete",
    Role.OPERATOR,
    "Delete files that their senders have no more, here or everywhere",
    AnswerRow(200, wire.DeleteAnswer),
    takes=wire.DeleteRequest,
    body=Body.LARGE,
)
def delete(call: Call) -> Response:
    """Delete files that have ended."""
    request = call.body(wire.DeleteRequest)
    found = delete_files(call.operator, request.physicals, everywhere=request.everywhere)
    return json_answer(found)


@ROUTES.call(
    "POST",
    "/v1/files/fetch",
    Role.OPERATOR,
    "Bring files from the object store into the data directories",
    AnswerRow(200, FetchAnswer),
    takes=FetchRequest,
)
def fetch(call: Call) -> Response:
    """Bring files here."""
    request = call.body(FetchRequest)
    return json_answer(fetch_files(call.operator, request.paths, request.ahead))


@ROUTES.call(
    "POST",
    "/v1/loads",
    Role.OPERATOR,
    "Load TsFiles of the receiver's machine, without an edge",
    AnswerRow(200, wire.CentreLoadAnswer),
    parameters=(_WAIT,),
    takes=wire.CentreLoadRequest,
)
def load_at_the_centre(call: Call) -> Response:
    """Load TsFiles of this machine."""
    request = call.body(wire.CentreLoadRequest)
    request = replace(request, paths=_paths_of(call, request.paths))
    call.operator.centre.begin(request)
    return json_answer(call.operator.centre.answer(request.task, _wait(call)))


def _wait(call: Call) -> float:
    """Seconds that the end of a work is waited for."""
    found = call.number("wait", f"a number of seconds up to {_LOAD_WAIT}")
    return float(min(_LOAD_WAIT, _LOAD_WAIT if found is None else found))


def _paths_of(call: Call, paths: list[str]) -> list[str]:
    """Paths of this machine, as far as whoever calls may have them read."""
    if not call.who.is_local:
        allowed = call.site.config.load.paths
        return [allowed_path(each, allowed) for each in paths]
    return paths


@ROUTES.call(
    "GET",
    "/v1/loads/<task>",
    Role.OPERATOR,
    "What became of the load; it is waited for, for 10 s at most",
    AnswerRow(200, wire.CentreLoadAnswer),
    parameters=(_WAIT,),
)
def load_outcome(call: Call) -> Response:
    """What became of a load."""
    return json_answer(call.operator.centre.answer(call.arguments["task"], _wait(call)))


@ROUTES.call(
    "POST",
    "/v1/adoptions",
    Role.OPERATOR,
    "Take over what an old receiver, or a copied tree, has on the receiver's machine",
    AnswerRow(200, wire.AdoptionAnswer),
    parameters=(_WAIT,),
    takes=wire.AdoptionRequest,
)
def adopt_old_receiver(call: Call) -> Response:
    """Look at an old receiver's files, and take them over if it is asked."""
    request = call.body(wire.AdoptionRequest)
    request = replace(request, paths=_paths_of(call, request.paths))
    call.operator.adoptions.begin(request)
    return json_answer(call.operator.adoptions.answer(request.task, _wait(call)))


@ROUTES.call(
    "GET",
    "/v1/adoptions/<task>",
    Role.OPERATOR,
    "What became of the adoption; it is waited for, for 10 s at most",
    AnswerRow(200, wire.AdoptionAnswer),
    parameters=(_WAIT,),
)
def adoption_outcome(call: Call) -> Response:
    """What became of an adoption."""
    return json_answer(call.operator.adoptions.answer(call.arguments["task"], _wait(call)))


@ROUTES.call(
    "GET",
    "/v1/owners",
    Role.OPERATOR,
    "Devices and who owns them",
    AnswerRow(200, views.OwnersPage),
    parameters=(_SENDER, PAGE_AFTER, PAGE_LIMIT),
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
    "/v1/quarantine",
    Role.OPERATOR,
    "Files that were refused or found bad",
    AnswerRow(200, wire.QuarantineAnswer),
    parameters=(_SENDER,),
    reads=True,
)
def quarantine(call: Call) -> Response:
    """Files that were refused or found bad."""
    entries = list_quarantine(call.looked_at.engine, call.query("sender"))
    return json_answer(wire.QuarantineAnswer(entries=entries))


@ROUTES.call(
    "POST",
    "/v1/quarantine/retry",
    Role.OPERATOR,
    "Look at a file again, or let the next round try",
    AnswerRow(200, wire.RetryAnswer),
    takes=wire.QuarantineKey,
)
def quarantine_retry(call: Call) -> Response:
    """Look at a file again."""
    key = call.body(wire.QuarantineKey)
    result = retry_quarantined(call.operator, key.sender, key.path, key.digest)
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
    drop_quarantined(call.operator, key.sender, key.path, key.digest)
    return Response(status=204)


@ROUTES.call(
    "GET",
    "/v1/retired",
    Role.OPERATOR,
    "Files that their senders have no more, in order of their physical paths",
    AnswerRow(200, RetiredPage),
    parameters=(_SENDER, _GONE, PAGE_AFTER, PAGE_LIMIT),
    reads=True,
)
def retired(call: Call) -> Response:
    """Files that their senders have no more."""
    page = list_retired(
        call.looked_at,
        sender=call.query("sender"),
        state=call.query("state"),
        after=call.query("after"),
        limit=call.limit(),
    )
    return json_answer(page)


@ROUTES.call(
    "GET",
    "/v1/retired/file",
    Role.OPERATOR,
    "What of a retired file exists nowhere else, or what a superseded one rests on",
    AnswerRow(200, RetiredView),
    parameters=(_PHYSICAL,),
    reads=True,
)
def retired_file(call: Call) -> Response:
    """One of them."""
    return json_answer(show_retired(call.looked_at, call.query("physical") or ""))


@ROUTES.call(
    "POST",
    "/v1/retired/drop",
    Role.OPERATOR,
    "Give a retired or superseded file up, points and all",
    EMPTY,
    takes=wire.RetiredKey,
)
def retired_drop(call: Call) -> Response:
    """Give one of them up."""
    drop_retired(call.operator, call.body(wire.RetiredKey).physical)
    return Response(status=204)


@ROUTES.call(
    "POST",
    "/v1/verdicts",
    Role.OPERATOR,
    "Record what a verification found: proved files, and bad ones to be mended, or for quarantine",
    AnswerRow(200, wire.VerdictsAnswer),
    takes=wire.VerdictsRequest,
    body=Body.LARGE,
)
def verdicts(call: Call) -> Response:
    """What a verification found."""
    request = call.body(wire.VerdictsRequest)
    found = [Verdict(each.physical, each.md5, each.bad, each.as_sent) for each in request.verdicts]
    merges = [BadMerge(each.id, each.reason) for each in request.compactions]
    recorded, mended = call.operator.damaged.judge(found)
    dissolved = dissolve_bad(call.operator.engine, merges)
    answer = wire.VerdictsAnswer(**recorded._asdict(), mended=mended, dissolved=dissolved)
    return json_answer(answer)


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
    AnswerRow(201, views.TokenMade),
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
    AnswerRow(200, views.StorageView),
    reads=True,
)
def storage(call: Call) -> Response:
    """How far the copies are."""
    return json_answer(running_storage(call.looked_at))


@ROUTES.call(
    "GET",
    "/v1/lost",
    Role.OPERATOR,
    "Files that neither side has any more, and that nobody has acknowledged",
    AnswerRow(200, wire.LostFilesAnswer),
    parameters=(_SENDER,),
    reads=True,
)
def lost_files(call: Call) -> Response:
    """Files that are lost."""
    found = list_lost(call.looked_at.engine, call.query("sender"))
    return json_answer(wire.LostFilesAnswer(files=found))


@ROUTES.call(
    "POST",
    "/v1/lost/acknowledge",
    Role.OPERATOR,
    "Say that lost files of a sender are known to be lost",
    AnswerRow(200, wire.LostFilesAnswer),
    takes=wire.AcknowledgeRequest,
    body=Body.LARGE,
)
def acknowledge(call: Call) -> Response:
    """Say that files are known to be lost."""
    request = call.body(wire.AcknowledgeRequest)
    done = acknowledge_lost(call.operator.engine, request.sender, frozenset(request.paths))
    return json_answer(wire.LostFilesAnswer(files=done))
