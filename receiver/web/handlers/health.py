"""Whether the process lives, and whether the receiver takes files."""

from __future__ import annotations

from flask import Response

from common import wire
from receiver.web.call import Call, json_answer
from receiver.web.problems import problem_response
from receiver.web.routes import AnswerRow, Role, Routes

__all__ = ["ROUTES", "Health"]


class Health(wire.Struct, frozen=True, kw_only=True):
    """What a probe reads."""

    status: str
    """`ok`; `degraded`: it works, and some files, or none, come through; problem documents say
    what else there is."""
    concerns: tuple[str, ...] = ()
    """Which, in numbers: whoever may ask for the status learns more there."""


ROUTES = Routes()
_NOT_READY = "it is not ready: `/readyz` says why"


@ROUTES.call(
    "GET", "/healthz", Role.PUBLIC, "Whether the process lives", AnswerRow(200, Health), reads=True
)
def healthz(call: Call) -> Response:
    """The process answers."""
    return _alive(call, *([_NOT_READY] if call.answering.problem() is not None else []))


@ROUTES.call(
    "GET",
    "/readyz",
    Role.PUBLIC,
    "Whether the receiver takes files, or a node is up to date; 503 says why not",
    AnswerRow(200, Health),
    reads=True,
)
def readyz(call: Call) -> Response:
    """The receiver takes files."""
    reason = call.answering.problem()
    if reason is None:
        return _alive(call)
    return problem_response(
        wire.Problem(
            type="urn:tsferry:not-ready",
            title="not ready",
            status=503,
            detail=reason,
            retry_after=10.0,
        )
    )


def _alive(call: Call, *more: str) -> Response:
    concerns = (*more, *call.answering.concerns())
    return json_answer(Health(status="degraded" if concerns else "ok", concerns=concerns))
