"""The calls of a write, `/v1/writes`: what a job asks that writes TsFiles; see docs/spark.md."""

from __future__ import annotations

from flask import Response

from common.errors import UsageError
from common.text_numbers import whole_number
from receiver.operator.views.load_wire import CentreLoadAnswer
from receiver.operator.views.write_wire import (
    KnownDevicesAnswer,
    KnownDevicesRequest,
    WriteCommit,
    WriteOpened,
    WriteRequest,
)
from receiver.web.call import Call, MediaTypeError, json_answer
from receiver.web.routes import EMPTY, AnswerRow, Body, Parameter, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()
_WRITE = "/v1/writes/<task>"
_BYTES = "application/octet-stream"
_LOAD_WAIT = 10.0
_OFFSET = Parameter(
    "offset", "query", {"type": "integer", "minimum": 0}, "Of the block in the file.", True
)
_XXH3 = Parameter(
    "xxh3", "query", {"type": "string"}, "xxh3-64 of the block, 16 lower-case hex digits.", True
)


@ROUTES.call(
    "PUT",
    _WRITE,
    Role.WRITER,
    "Begin a write: rows of a job that become one load at the centre",
    AnswerRow(200, WriteOpened),
    takes=WriteRequest,
)
def open_write(call: Call) -> Response:
    """Begin a write."""
    opened = call.writes.open(call.arguments["task"], call.body(WriteRequest), call.rights)
    return json_answer(opened)


@ROUTES.call(
    "POST",
    f"{_WRITE}/devices",
    Role.WRITER,
    "What is known of devices: storage group, owner, types of series",
    AnswerRow(200, KnownDevicesAnswer),
    takes=KnownDevicesRequest,
    body=Body.LARGE,
)
def known_devices(call: Call) -> Response:
    """What is known of devices."""
    request = call.body(KnownDevicesRequest)
    found = call.writes.known(call.arguments["task"], request.devices, call.rights)
    return json_answer(KnownDevicesAnswer(devices=found))


@ROUTES.call(
    "PUT",
    f"{_WRITE}/parts/<attempt>/<number>",
    Role.WRITER,
    "A block of a file of a write",
    EMPTY,
    media=_BYTES,
    body=Body.BLOCK,
    parameters=(_OFFSET, _XXH3),
    displaced=True,
)
def write_block(call: Call) -> Response:
    """A block of a file."""
    if call.request.mimetype != _BYTES:
        raise MediaTypeError(f"expected Content-Type: {_BYTES}")
    arguments = call.arguments
    offset = call.number("offset", "a number of bytes")
    if offset is None:
        raise UsageError("offset: missing; expected where the block begins")
    number = whole_number(arguments["number"], 9)
    if number is None:
        raise UsageError("the number of a file is some digits")
    call.writes.put(
        arguments["task"],
        arguments["attempt"],
        number,
        offset,
        call.content(),
        call.query("xxh3") or "",
        call.rights,
    )
    return Response(status=204)


@ROUTES.call(
    "POST",
    f"{_WRITE}/commit",
    Role.WRITER,
    "Load the files of a write, all in one commit or none; then ask `GET /v1/loads/<task>`",
    AnswerRow(200, CentreLoadAnswer),
    takes=WriteCommit,
    body=Body.LARGE,
)
def commit_write(call: Call) -> Response:
    """Load the files of a write."""
    task = call.arguments["task"]
    call.writes.commit(task, call.body(WriteCommit).parts, call.rights)
    return json_answer(call.writes.answer(task, _LOAD_WAIT))


@ROUTES.call("DELETE", _WRITE, Role.WRITER, "End a write with nothing", EMPTY)
def drop_write(call: Call) -> Response:
    """End a write with nothing."""
    call.writes.drop(call.arguments["task"], call.rights)
    return Response(status=204)
