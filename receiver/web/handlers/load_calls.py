"""The calls that load files which lie at the centre, and adopt those of another tool."""

from __future__ import annotations

from flask import Response
from msgspec.structs import replace

from receiver.operator.centre.loaded_paths import allowed_path
from receiver.operator.views import load_wire
from receiver.operator.views.load_views import CentreLoadsAnswer
from receiver.web.call import Call, json_answer
from receiver.web.routes import AnswerRow, Parameter, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()
_LOAD_WAIT = 10
"""Seconds that an answer waits for the end of a work, unless less is asked for."""
_WAIT = Parameter(
    "wait",
    "query",
    {"type": "integer", "minimum": 0, "maximum": _LOAD_WAIT},
    f"Seconds that the end is waited for, at most; {_LOAD_WAIT} if left out.",
)


@ROUTES.call(
    "POST",
    "/v1/loads",
    Role.OPERATOR,
    "Load TsFiles of the receiver's machine, without an edge",
    AnswerRow(200, load_wire.CentreLoadAnswer),
    parameters=(_WAIT,),
    takes=load_wire.CentreLoadRequest,
)
def load_at_the_centre(call: Call) -> Response:
    """Load TsFiles of this machine."""
    request = call.body(load_wire.CentreLoadRequest)
    request = replace(request, paths=_paths_of(call, request.paths))
    call.operator.centre.begin(request)
    return json_answer(call.operator.centre.answer(request.task, _wait(call)))


@ROUTES.call(
    "GET",
    "/v1/loads",
    Role.OPERATOR,
    "The loads at the centre that are not over",
    AnswerRow(200, CentreLoadsAnswer),
)
def loads_under_way(call: Call) -> Response:
    """The loads that are not over."""
    return json_answer(CentreLoadsAnswer(loads=call.operator.centre.under_way()))


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
    AnswerRow(200, load_wire.CentreLoadAnswer),
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
    AnswerRow(200, load_wire.AdoptionAnswer),
    parameters=(_WAIT,),
    takes=load_wire.AdoptionRequest,
)
def adopt_old_receiver(call: Call) -> Response:
    """Look at an old receiver's files, and take them over if it is asked."""
    request = call.body(load_wire.AdoptionRequest)
    request = replace(request, paths=_paths_of(call, request.paths))
    call.operator.adoptions.begin(request)
    return json_answer(call.operator.adoptions.answer(request.task, _wait(call)))


@ROUTES.call(
    "GET",
    "/v1/adoptions/<task>",
    Role.OPERATOR,
    "What became of the adoption; it is waited for, for 10 s at most",
    AnswerRow(200, load_wire.AdoptionAnswer),
    parameters=(_WAIT,),
)
def adoption_outcome(call: Call) -> Response:
    """What became of an adoption."""
    return json_answer(call.operator.adoptions.answer(call.arguments["task"], _wait(call)))
