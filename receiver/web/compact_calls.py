"""The call by which an operator has files merged."""

from __future__ import annotations

from flask import Response

from receiver.operator import views, wire
from receiver.operator.compact import compact_files
from receiver.web.call import Call, json_answer
from receiver.web.routes import AnswerRow, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()


@ROUTES.call(
    "POST",
    "/v1/compact",
    Role.OPERATOR,
    "Have files of storage groups merged for those who read them",
    AnswerRow(200, views.CompactView),
    takes=wire.CompactRequest,
)
def compact(call: Call) -> Response:
    """Have files merged."""
    asked = call.body(wire.CompactRequest)
    return json_answer(compact_files(call.operator, asked.path, asked.partition))
