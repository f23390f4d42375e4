"""The calls by which an operator has files merged, and a reader says where there are many."""

from __future__ import annotations

from flask import Response

from common.wire import BASE, CrowdedReport
from receiver.operator.asked_work.compact import compact_files
from receiver.operator.views import wire
from receiver.operator.views.compact_views import CompactView
from receiver.web.call import Call, json_answer
from receiver.web.routes import EMPTY, AnswerRow, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()


@ROUTES.call(
    "POST",
    "/v1/compact",
    Role.OPERATOR,
    "Have files of storage groups merged for those who read them",
    AnswerRow(200, CompactView),
    takes=wire.CompactRequest,
)
def compact(call: Call) -> Response:
    """Have files merged."""
    asked = call.body(wire.CompactRequest)
    return json_answer(compact_files(call.operator, asked.path, asked.partition))


@ROUTES.call(
    "POST",
    f"{BASE}/catalogue/crowded",
    Role.READER,
    "Say in which partitions a query met many or overlapping files: a hint which to merge first",
    EMPTY,
    takes=CrowdedReport,
)
def catalogue_crowded(call: Call) -> Response:
    """Say in which partitions a query met many or overlapping files."""
    call.who.must_read()
    told = call.body(CrowdedReport).partitions
    call.node.crowded.report((each.storage_group, each.partition) for each in told)
    return Response(status=204)
