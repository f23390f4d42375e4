"""The log of the engine over HTTP, for nodes that follow this receiver, or this node.

All secrets that the engine has (digests of tokens among them) are in it, so it takes an operator.
"""

from __future__ import annotations

from flask import Response

from receiver.operator.stored.log_files import read_log_file
from receiver.operator.views.log_file_views import LogFilesView
from receiver.web.call import Call, json_answer
from receiver.web.routes import AnswerRow, Parameter, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()
_BYTES = "application/octet-stream"
_LSN = Parameter(
    "lsn", "query", {"type": "integer", "minimum": 0}, "Of a commit that is known; 0 for none."
)
_TS = Parameter("ts", "query", {"type": "integer", "minimum": 0}, "The timestamp of that commit.")
_WAIT = Parameter(
    "wait",
    "query",
    {"type": "number", "minimum": 0},
    "Seconds (at most 30) to wait for a newer commit; fewer if too many wait already.",
)
_BEGIN = Parameter("begin", "query", {"type": "integer", "minimum": 0}, "Offset of the first byte.")


@ROUTES.call(
    "GET",
    "/v1/log",
    Role.OPERATOR,
    "The files of the metadata engine, as far as they are committed",
    AnswerRow(200, LogFilesView),
    parameters=(_LSN, _TS, _WAIT),
    reads=True,
)
def log(call: Call) -> Response:
    """The files of the engine."""
    engine = call.looked_at.engine
    lsn = call.number("lsn", "an LSN") or 0
    ts = call.number("ts", "a commit timestamp") or 0
    call.site.polls.wait(
        call.seconds("wait"),
        lambda seconds: engine.wait_behind(ts, seconds),
        lambda is_newer: is_newer,
    )
    return json_answer(call.answering.log_files(lsn, ts))


@ROUTES.call(
    "GET",
    "/v1/log/<name>",
    Role.OPERATOR,
    "Bytes of one of these files, at most 8 MiB; none where what is committed ends",
    AnswerRow(200, raw=_BYTES),
    parameters=(_BEGIN,),
    reads=True,
)
def log_file(call: Call) -> Response:
    """Bytes of a file of the engine."""
    begin = call.number("begin", "an offset") or 0
    body = read_log_file(call.looked_at, call.arguments["name"], begin)
    return Response(body, mimetype=_BYTES)
