"""What a monitoring system scrapes."""

from __future__ import annotations

from flask import Response

from receiver.web.call import Call
from receiver.web.routes import AnswerRow, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()


@ROUTES.call(
    "GET",
    "/metrics",
    Role.READER,
    "Measures in Prometheus' text format",
    AnswerRow(200, meaning="the measures", raw="text/plain"),
    reads=True,
    displaced=True,
)
def metrics(call: Call) -> Response:
    """Measures in Prometheus' text format."""
    from common.metering.measures import CONTENT_TYPE

    return Response(call.site.measures(), content_type=CONTENT_TYPE)
