"""Background tasks over HTTP, `/v1/tasks`: what operators see and say, and what executors do.

An executor takes a task, renews its lease, and then asks and answers until nothing is asked any
more; `docs/background_work.md` has the order of the calls. It has the token of a worker.
"""

from __future__ import annotations

import re

from flask import Response

from common.errors import ProtocolError, UsageError
from common.names import is_task_id
from common.text_numbers import whole_number
from receiver.operator.asked_work.background_tasks import (
    TASK_STATES,
    add_task,
    cancel_load,
    cancel_task,
    list_tasks,
    retry_task,
    task_number,
)
from receiver.operator.views.background_views import (
    BackgroundTasksPage,
    CancelRequest,
    TaskAddRequest,
    TaskEndRequest,
    TaskNamed,
    TaskTaken,
    TaskTakeRequest,
)
from receiver.web.call import Call, MediaTypeError, json_answer
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
_BYTES = "application/octet-stream"
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,100}\Z")
_STATE = Parameter("state", "query", {"enum": list(TASK_STATES)}, "Only those that stand so.")
_KIND = Parameter("kind", "query", {"type": "string"}, "Only of this kind.")
_MINE = (
    Parameter("executor", "query", {"type": "string"}, "Who took it, as it was said then.", True),
    Parameter("attempt", "query", {"type": "integer", "minimum": 1}, "As it was taken.", True),
)
_ASKED = Parameter("tag", "query", {"type": "string"}, "Of the question.", True)
_OFFSET = Parameter(
    "offset", "query", {"type": "integer", "minimum": 0}, "Of the block in the file.", True
)
_XXH3 = Parameter(
    "xxh3", "query", {"type": "string"}, "xxh3-64 of the block, 16 lower-case hex digits.", True
)
_TAG = Parameter("Tsferry-Question", "header", {"type": "string"}, "Goes with the answer.", True)


# -- operators -----------------------------------------------------------------------------------


@ROUTES.call(
    "GET",
    "/v1/tasks",
    Role.OPERATOR,
    "Background tasks, in the order in which they were added",
    AnswerRow(200, BackgroundTasksPage),
    parameters=(_STATE, _KIND, PAGE_AFTER, PAGE_LIMIT),
    reads=True,
)
def background_tasks(call: Call) -> Response:
    """Background tasks."""
    page = list_tasks(
        call.looked_at,
        state=call.query("state"),
        kind=call.query("kind"),
        after=call.query("after"),
        limit=call.limit(),
    )
    return json_answer(page)


@ROUTES.call(
    "POST",
    "/v1/tasks",
    Role.OPERATOR,
    "Add a background task",
    AnswerRow(200, TaskNamed),
    takes=TaskAddRequest,
)
def add_background_task(call: Call) -> Response:
    """Add a background task."""
    added = add_task(call.operator.engine, call.operator.work, call.body(TaskAddRequest))
    return json_answer(TaskNamed(task=str(added)))


@ROUTES.call(
    "POST",
    "/v1/tasks/<task>/cancel",
    Role.OPERATOR,
    "Have nobody do a task, or a load at the centre; whoever does it now commits no more of it",
    EMPTY,
    takes=CancelRequest,
)
def cancel_background_task(call: Call) -> Response:
    """Have nobody do a task."""
    there, reason = call.operator, call.body(CancelRequest).reason
    if is_task_id(call.arguments["task"]):
        cancel_load(there, call.arguments["task"], reason)
        return Response(status=204)
    cancel_task(there.engine, there.work, call.arguments["task"], reason)
    return Response(status=204)


@ROUTES.call(
    "POST",
    "/v1/tasks/<task>/retry",
    Role.OPERATOR,
    "Have a task wait again that failed or was cancelled",
    EMPTY,
)
def retry_background_task(call: Call) -> Response:
    """Have a task wait again."""
    there = call.operator
    retry_task(there.engine, there.work, call.arguments["task"])
    return Response(status=204)


# -- executors -----------------------------------------------------------------------------------


@ROUTES.call(
    "POST",
    "/v1/tasks/take",
    Role.WORKER,
    "Take the task that is to be done next, for one lease",
    AnswerRow(200, TaskTaken),
    AnswerRow(204, meaning="nothing waits"),
    takes=TaskTakeRequest,
)
def take_background_task(call: Call) -> Response:
    """Take the task that is to be done next."""
    call.who.must_work()
    request = call.body(TaskTakeRequest)
    task = None
    if request.task:
        call.who.must_operate()
        task = task_number(request.task)
    row = call.node.remote_work.take(
        _executor(call, request.executor), request.kinds, request.version, task=task
    )
    if row is None:
        return Response(status=204)
    lease = call.node.remote_work.lease
    return json_answer(TaskTaken(task=str(row.id), attempt=row.attempt, kind=row.kind, lease=lease))


@ROUTES.call(
    "POST",
    "/v1/tasks/<task>/renew",
    Role.WORKER,
    "Say that a task is still being done",
    EMPTY,
    parameters=_MINE,
)
def renew_background_task(call: Call) -> Response:
    """Say that a task is still being done."""
    call.node.remote_work.renew(*_mine(call))
    return Response(status=204)


@ROUTES.call(
    "GET",
    "/v1/tasks/<task>/question",
    Role.WORKER,
    "What is to be answered next",
    AnswerRow(200, raw=_BYTES, headers=(_TAG,), meaning="as its kind has it"),
    AnswerRow(204, meaning="all was answered: the task is done"),
    parameters=_MINE,
)
def background_question(call: Call) -> Response:
    """What is to be answered next."""
    question = call.node.remote_work.question(*_mine(call))
    if question is None:
        return Response(status=204)
    headers = {"Tsferry-Question": question.tag}
    return Response(question.content, 200, headers, mimetype=_BYTES)


@ROUTES.call(
    "PUT",
    "/v1/tasks/<task>/outputs/<number>",
    Role.WORKER,
    "A block of a file that goes with the answer",
    EMPTY,
    media=_BYTES,
    body=Body.BLOCK,
    parameters=(*_MINE, _ASKED, _OFFSET, _XXH3),
)
def background_output(call: Call) -> Response:
    """A block of a file."""
    mine = _mine(call)
    if call.request.mimetype != _BYTES:
        raise MediaTypeError(f"expected Content-Type: {_BYTES}")
    number = whole_number(call.arguments["number"], 9)
    offset = call.number("offset", "a number of bytes")
    if offset is None:
        raise UsageError("offset: missing; expected where the block begins")
    if number is None:
        raise UsageError("the number of a file is some digits")
    xxh3 = call.query("xxh3") or ""
    call.node.remote_work.put(*mine, _tag(call), number, offset, call.content(), xxh3)
    return Response(status=204)


@ROUTES.call(
    "POST",
    "/v1/tasks/<task>/answer",
    Role.WORKER,
    "Answer a question; what it says is committed",
    EMPTY,
    media=_BYTES,
    body=Body.LARGE,
    parameters=(*_MINE, _ASKED),
)
def background_answer(call: Call) -> Response:
    """Answer a question."""
    mine = _mine(call)
    call.node.remote_work.answer(*mine, _tag(call), bytes(call.content()))
    return Response(status=204)


@ROUTES.call(
    "POST",
    "/v1/tasks/<task>/end",
    Role.WORKER,
    "Say that a task failed, or give it back",
    EMPTY,
    takes=TaskEndRequest,
    parameters=_MINE,
)
def end_background_task(call: Call) -> Response:
    """Say that a task failed, or give it back."""
    request = call.body(TaskEndRequest)
    call.node.remote_work.end(*_mine(call), request.end, request.reason[:1000])
    return Response(status=204)


def _mine(call: Call) -> tuple[int, int, str]:
    """Task, attempt and executor of a call."""
    call.who.must_work()
    task = task_number(call.arguments["task"])
    attempt = call.number("attempt", "the number of an attempt")
    if attempt is None:
        raise UsageError("attempt: missing; expected the number with which it was taken")
    return task, attempt, _executor(call, call.query("executor") or "")


def _tag(call: Call) -> str:
    tag = call.query("tag")
    if tag is None:
        raise UsageError("tag: missing; expected that of the question")
    return tag


def _executor(call: Call, name: str) -> str:
    """An executor's name in the table: with its token, as another's it cannot speak."""
    if not _NAME.match(name):
        raise ProtocolError(f"executor {name[:40]!a}: expected letters, digits, `.`, `_`, `:`, `-`")
    return f"{name}@{call.who.token_id or call.who.peer}"
