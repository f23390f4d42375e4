"""The calls of operators about files: loaded, retired, lost, in quarantine."""

from __future__ import annotations

from flask import Response

from common.errors import UsageError
from common.wire import FetchAnswer, FetchRequest
from receiver.load.merge_verdicts import BadMerge, ProvedMerge, dissolve_bad, record_merges
from receiver.load.upkeep.verdicts import Verdict
from receiver.metadata.sql.executing import moment
from receiver.operator.edges.lost import acknowledge_lost, list_lost
from receiver.operator.namespace.tree import list_tree
from receiver.operator.namespace.tree_chunks import list_chunks
from receiver.operator.stored.files import FILE_STATES, delete_files, list_files, undelete_files
from receiver.operator.stored.quarantine import drop_quarantined, list_quarantine, retry_quarantined
from receiver.operator.stored.retired import GONE_STATES, drop_retired, list_retired, show_retired
from receiver.operator.stored.storage import fetch_files
from receiver.operator.views import verdict_wire, wire
from receiver.operator.views.file_views import FilesPage
from receiver.operator.views.retired_views import RetiredPage, RetiredView
from receiver.operator.views.tree_views import ChunksPage, TreePage
from receiver.web.call import Call, json_answer
from receiver.web.routes import (
    EMPTY,
    OF_SENDER,
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
_PHYSICAL = Parameter("physical", "query", {"type": "string"}, "Its physical path.")


@ROUTES.call(
    "GET",
    "/v1/files",
    Role.OPERATOR,
    "Rows of the catalogue, in order of their physical paths",
    AnswerRow(200, FilesPage),
    parameters=(OF_SENDER, _STATE, _UNVERIFIED, PAGE_AFTER, PAGE_LIMIT),
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
    "GET",
    "/v1/quarantine",
    Role.OPERATOR,
    "Files that were refused or found bad",
    AnswerRow(200, wire.QuarantineAnswer),
    parameters=(OF_SENDER,),
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
    parameters=(OF_SENDER, _GONE, PAGE_AFTER, PAGE_LIMIT),
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
    AnswerRow(200, verdict_wire.VerdictsAnswer),
    takes=verdict_wire.VerdictsRequest,
    body=Body.LARGE,
)
def verdicts(call: Call) -> Response:
    """What a verification found."""
    request = call.body(verdict_wire.VerdictsRequest)
    found = [Verdict(each.physical, each.md5, each.bad, each.as_sent) for each in request.verdicts]
    merges = [BadMerge(each.id, each.reason) for each in request.compactions]
    recorded, mended = call.operator.damaged.judge(found)
    dissolved = dissolve_bad(call.operator.engine, merges)
    verified = record_merges(
        call.operator.engine,
        [
            ProvedMerge(each.id, tuple((one.physical, one.size, one.md5) for one in each.outputs))
            for each in request.proved_compactions
        ],
        by="verification",
    )
    answer = verdict_wire.VerdictsAnswer(
        **recorded._asdict(), mended=mended, dissolved=dissolved, compactions_verified=verified
    )
    return json_answer(answer)


@ROUTES.call(
    "GET",
    "/v1/lost",
    Role.OPERATOR,
    "Files that neither side has any more, and that nobody has acknowledged",
    AnswerRow(200, wire.LostFilesAnswer),
    parameters=(OF_SENDER,),
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
