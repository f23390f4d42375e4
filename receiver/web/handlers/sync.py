"""The calls of a round, `/sync/v1`: see docs/protocol.md for their story."""

from __future__ import annotations

from flask import Response

from common import wire
from common.errors import UsageError
from common.formats.schemaitems import SchemaChanges
from receiver.operator.stored.storage import fetch_files
from receiver.transfer.said_lists.listing import page_limit
from receiver.web.call import Call, MediaTypeError, json_answer
from receiver.web.routes import (
    CODED,
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
_TASK = f"{wire.BASE}/tasks/<task>"
_SINCE = Parameter(
    "after", "query", {"type": "integer", "minimum": 0}, "The commit that is known; 0 for none."
)
_CURSOR = Parameter("cursor", "query", {"type": "string"}, "`next` of the page before.")
_LOOK = Parameter(
    "look", "query", {"type": "boolean"}, "Say of each file whether its bytes are on the disk."
)
_AT = Parameter(
    "at", "query", {"type": "integer", "minimum": 0}, "The files as of this commit; else of now."
)
_LOADED_SINCE = Parameter(
    "since", "query", {"type": "integer", "minimum": 0}, "Only files loaded after this commit."
)
_AFTER_ID = Parameter(
    "after", "query", {"type": "integer", "minimum": 0}, "`next` of the page before."
)
_QUARANTINED = Parameter(
    "quarantined", "query", {"type": "boolean"}, "Those too that were loaded, then found bad."
)
_DEVICES = Parameter(
    "devices", "query", {"type": "boolean"}, "With the ranges of time of their devices."
)
_PULL_WAIT = Parameter(
    "wait", "query", {"type": "number", "minimum": 0}, "Seconds (at most 30) to wait for the file."
)
_WAIT = Parameter(
    "wait",
    "query",
    {"type": "number", "minimum": 0},
    "Seconds (at most 30) to wait for the end; fewer if too many wait already.",
)


@ROUTES.call(
    "POST",
    f"{wire.BASE}/check",
    Role.SENDER,
    "Begin a round: versions, access, history, limits",
    AnswerRow(200, wire.CheckAnswer),
    takes=wire.CheckRequest,
)
def check(call: Call) -> Response:
    """The first call of a round."""
    request = call.body(wire.CheckRequest)
    call.must_be(request.sender)
    return json_answer(call.node.checks.check(call.who, request))


@ROUTES.call(
    "POST",
    f"{wire.BASE}/heartbeat",
    Role.SENDER,
    "Say that the sender lives, and what it has left to do",
    AnswerRow(200, wire.HeartbeatAnswer),
    takes=wire.Heartbeat,
)
def heartbeat(call: Call) -> Response:
    """A sender lives."""
    beat = call.body(wire.Heartbeat)
    return json_answer(call.node.checks.heartbeat(call.who, call.sender, beat))


@ROUTES.call(
    "PUT",
    _TASK,
    Role.SENDER,
    "Start a task, or go on with it",
    AnswerRow(200, wire.TaskAnswer),
    takes=wire.StartRequest,
)
def start_task(call: Call) -> Response:
    """Start a task, or go on with it."""
    request = call.body(wire.StartRequest)
    return json_answer(call.node.tasks.start(call.who, call.sender, call.task, request))


@ROUTES.call(
    "GET",
    _TASK,
    Role.SENDER,
    "State of a task; its outcome once that is committed",
    AnswerRow(200, wire.TaskAnswer),
    parameters=(_WAIT,),
)
def task_state(call: Call) -> Response:
    """State of a task, and its outcome."""
    who, sender, task = call.who, call.sender, call.task
    answer = call.site.polls.wait(
        call.seconds("wait"),
        lambda seconds: call.node.tasks.answer(who, sender, task, seconds),
        lambda answer: answer.state is wire.TaskState.DONE,
    )
    return json_answer(answer)


@ROUTES.call(
    "PATCH",
    f"{_TASK}/schema",
    Role.SENDER,
    "A block of the sender's schema log",
    AnswerRow(200, wire.SchemaAnswer),
    media=wire.SCHEMA_TYPE,
    body=Body.BLOCK,
    task=True,
)
def schema(call: Call) -> Response:
    """A block of the sender's schema log."""
    if call.request.mimetype != wire.SCHEMA_TYPE:
        raise MediaTypeError(f"expected Content-Type: {wire.SCHEMA_TYPE}")
    body = call.request.get_data()
    return json_answer(call.node.tasks.schema(call.who, call.sender, call.task, call.epoch, body))


@ROUTES.call(
    "POST",
    f"{_TASK}/plan",
    Role.SENDER,
    "What to do with each file of a page",
    AnswerRow(200, wire.PlanAnswer),
    takes=wire.PlanPage,
    body=Body.LARGE,
    task=True,
)
def plan(call: Call) -> Response:
    """What to do with each file of a page."""
    page = call.body(wire.PlanPage)
    return json_answer(call.node.tasks.plan(call.who, call.sender, call.task, call.epoch, page))


@ROUTES.call(
    "POST",
    f"{_TASK}/deleted",
    Role.SENDER,
    "Loaded paths that are gone at the edge, or replaced",
    EMPTY,
    takes=wire.DeletedPage,
    body=Body.LARGE,
    task=True,
)
def deleted(call: Call) -> Response:
    """Paths that are gone at the edge, or replaced."""
    page = call.body(wire.DeletedPage)
    call.node.tasks.deleted(call.who, call.sender, call.task, call.epoch, page)
    return Response(status=204)


@ROUTES.call(
    "POST",
    f"{_TASK}/deletions",
    Role.SENDER,
    "What is new in deletion files",
    AnswerRow(200, wire.DeletionsAnswer),
    takes=wire.DeletionsPage,
    body=Body.LARGE,
    task=True,
)
def deletions(call: Call) -> Response:
    """What is new in the deletion files beside TsFiles."""
    page = call.body(wire.DeletionsPage)
    tasks = call.node.tasks
    return json_answer(tasks.deletions(call.who, call.sender, call.task, call.epoch, page))


@ROUTES.call(
    "POST",
    f"{_TASK}/batch",
    Role.SENDER,
    "Many small files in one body",
    AnswerRow(200, wire.BatchAnswer),
    media=wire.BATCH_TYPE,
    body=Body.LARGE,
    parameters=CODED,
    task=True,
)
def batch(call: Call) -> Response:
    """Many small files."""
    if call.request.mimetype != wire.BATCH_TYPE:
        raise MediaTypeError(f"expected Content-Type: {wire.BATCH_TYPE}")
    body = call.content()
    return json_answer(call.node.tasks.batch(call.who, call.sender, call.task, call.epoch, body))


@ROUTES.call(
    "POST",
    f"{_TASK}/pull",
    Role.SENDER,
    "Read a planned file from the storage node that it was sent to",
    AnswerRow(200, wire.PullAnswer),
    takes=wire.PullRequest,
    parameters=(_PULL_WAIT,),
    task=True,
)
def pull(call: Call) -> Response:
    """Read a file from a storage node."""
    who, sender, task, epoch = call.who, call.sender, call.task, call.epoch
    request = call.body(wire.PullRequest)
    answer = call.site.polls.wait(
        call.seconds("wait"),
        lambda seconds: call.node.tasks.pull(who, sender, task, epoch, request, seconds),
        lambda answer: answer.state is not wire.PullState.COMING,
    )
    return json_answer(answer)


@ROUTES.call(
    "POST",
    f"{_TASK}/manifest",
    Role.SENDER,
    "A part of a long manifest, before the end",
    EMPTY,
    takes=wire.ManifestPage,
    body=Body.LARGE,
    task=True,
)
def manifest(call: Call) -> Response:
    """A part of what the end of a long task says."""
    page = call.body(wire.ManifestPage)
    call.node.tasks.manifest(call.who, call.sender, call.task, call.epoch, page)
    return Response(status=204)


@ROUTES.call(
    "POST",
    f"{_TASK}/end",
    Role.SENDER,
    "Everything was sent: load it",
    AnswerRow(202, wire.TaskAnswer, meaning="the end is recorded; it is being loaded"),
    AnswerRow(200, wire.TaskAnswer, meaning="it is loaded"),
    takes=wire.EndRequest,
    body=Body.LARGE,
    task=True,
)
def end_task(call: Call) -> Response:
    """Everything was sent."""
    request = call.body(wire.EndRequest)
    answer = call.node.tasks.end(call.who, call.sender, call.task, call.epoch, request)
    return json_answer(answer, 200 if answer.state is wire.TaskState.DONE else 202)


@ROUTES.call(
    "GET",
    f"{wire.BASE}/inventory",
    Role.SENDER,
    "What the receiver has of this sender, in path order",
    AnswerRow(200, wire.InventoryAnswer),
    parameters=(PAGE_AFTER, PAGE_LIMIT, _LOOK),
)
def inventory(call: Call) -> Response:
    """What the receiver has of the sender."""
    look = _is_true(call, "look")
    after, limit = call.query("after"), call.limit()
    page = call.node.listing.inventory(call.who, call.sender, after, limit, look)
    return json_answer(page)


@ROUTES.call(
    "POST",
    f"{wire.BASE}/listed",
    Role.SENDER,
    "Whether the sender's list is what the receiver has listed",
    AnswerRow(200, wire.ListedAnswer),
    takes=wire.ListedRequest,
)
def listed(call: Call) -> Response:
    """Whether both sides list the same."""
    request = call.body(wire.ListedRequest)
    return json_answer(call.node.listed.compare(call.who, call.sender, request))


@ROUTES.call(
    "POST",
    f"{wire.BASE}/listed/ended",
    Role.SENDER,
    "Which of these files the receiver let go by itself",
    AnswerRow(200, wire.EndedAnswer),
    takes=wire.ListedPage,
    body=Body.LARGE,
)
def ended(call: Call) -> Response:
    """Files that the receiver let go by itself."""
    page = call.body(wire.ListedPage)
    return json_answer(call.node.listed.ended(call.who, call.sender, page))


@ROUTES.call(
    "POST",
    f"{wire.BASE}/lost",
    Role.SENDER,
    "Files that the sender has no more, and the receiver may not know",
    AnswerRow(200, wire.LostAnswer),
    takes=wire.LostPage,
    body=Body.LARGE,
)
def lost(call: Call) -> Response:
    """Files that the sender has no more."""
    page = call.body(wire.LostPage)
    return json_answer(call.node.lost.tell(call.who, call.sender, page))


@ROUTES.call(
    "GET",
    f"{wire.BASE}/settled",
    Role.SENDER,
    "Files that the sender need not remember any more, since a commit",
    AnswerRow(200, wire.SettledAnswer),
    parameters=(_SINCE, _CURSOR, PAGE_LIMIT),
)
def settled(call: Call) -> Response:
    """Files that nobody needs to remember."""
    after = call.number("after", "a commit timestamp") or 0
    page = call.node.settled.page(call.who, call.sender, after, call.query("cursor"), call.limit())
    return json_answer(page)


def _is_true(call: Call, name: str) -> bool:
    text = call.query(name) or "false"
    if text not in ("true", "false"):
        raise UsageError(f"{name}: expected true or false")
    return text == "true"


@ROUTES.call(
    "GET",
    f"{wire.BASE}/catalogue",
    Role.READER,
    "Committed files of all senders, in path order",
    AnswerRow(200, wire.CatalogueAnswer),
    parameters=(PAGE_AFTER, PAGE_LIMIT, _AT, _LOADED_SINCE, _QUARANTINED, _DEVICES),
    reads=True,
)
def catalogue(call: Call) -> Response:
    """Committed files of everybody."""
    limit, at = call.limit(), call.number("at", "a commit timestamp")
    call.answering.reach(at)
    page = call.answering.listing.catalogue(
        call.who,
        call.query("after"),
        limit,
        at=at,
        since=call.number("since", "a commit timestamp") or 0,
        quarantined=_is_true(call, "quarantined"),
        devices=_is_true(call, "devices"),
    )
    return json_answer(page)


@ROUTES.call(
    "GET",
    f"{wire.BASE}/catalogue/compacted",
    Role.READER,
    "Merged files that may be read in place of files of the catalogue, and of which",
    AnswerRow(200, wire.CompactedAnswer),
    parameters=(_AFTER_ID, PAGE_LIMIT, _AT),
    reads=True,
)
def catalogue_compacted(call: Call) -> Response:
    """What stands for files."""
    limit, at = call.limit(), call.number("at", "a commit timestamp")
    call.answering.reach(at)
    after = call.number("after", "the id of a compaction")
    return json_answer(call.answering.listing.compacted(call.who, at, after, limit))


@ROUTES.call(
    "GET",
    f"{wire.BASE}/catalogue/deletions",
    Role.READER,
    "Which points of which files of all senders were deleted",
    AnswerRow(200, wire.NotedAnswer),
    parameters=(PAGE_AFTER, PAGE_LIMIT),
    reads=True,
)
def catalogue_deletions(call: Call) -> Response:
    """Deletion files of everybody."""
    return json_answer(
        call.answering.listing.deletions(call.who, call.query("after"), call.limit())
    )


@ROUTES.call(
    "POST",
    f"{wire.BASE}/catalogue/fates",
    Role.READER,
    "What became of files that were in the catalogue, for one who forwards it",
    AnswerRow(200, wire.FatesAnswer),
    takes=wire.FatesRequest,
    body=Body.LARGE,
    reads=True,
)
def catalogue_fates(call: Call) -> Response:
    """What became of files."""
    request = call.body(wire.FatesRequest)
    return json_answer(call.answering.listing.fates(call.who, request.paths))


@ROUTES.call(
    "POST",
    f"{wire.BASE}/catalogue/objects",
    Role.READER,
    "Which objects of the receiver's store files are, for one who reads them there",
    AnswerRow(200, wire.ObjectsAnswer),
    takes=wire.ObjectsRequest,
    body=Body.LARGE,
    reads=True,
)
def catalogue_objects(call: Call) -> Response:
    """Which objects of the store files are."""
    request = call.body(wire.ObjectsRequest)
    return json_answer(call.answering.listing.objects(call.who, request.paths))


@ROUTES.call(
    "POST",
    f"{wire.BASE}/catalogue/fetch",
    Role.READER,
    "Bring files from the object store into the data directories, for one who reads them there",
    AnswerRow(200, wire.FetchAnswer),
    takes=wire.FetchRequest,
)
def catalogue_fetch(call: Call) -> Response:
    """Bring files here."""
    call.who.must_read()
    request = call.body(wire.FetchRequest)
    return json_answer(fetch_files(call.node.operator, request.paths, request.ahead))


@ROUTES.call(
    "GET",
    f"{wire.BASE}/schema/changes",
    Role.READER,
    "What became of the schema since a commit, as items in path order",
    AnswerRow(200, SchemaChanges),
    parameters=(_SINCE, _CURSOR, PAGE_LIMIT),
    reads=True,
)
def schema_changes(call: Call) -> Response:
    """What became of the schema."""
    after = call.number("after", "a commit, or 0 for the whole schema") or 0
    call.who.must_read()
    call.answering.reach(after)
    limit = page_limit(call.limit(), call.site.config.limits.max_page_items)
    page = call.answering.schema_reader.page(after, call.query("cursor"), limit)
    return json_answer(page)
