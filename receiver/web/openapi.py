"""The OpenAPI 3.1 document at `/openapi.json`: from the table of calls and the wire structs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from flask import Response

import common
from common import wire
from receiver.web.call import Call
from receiver.web.routes import JSON, AnswerRow, Parameter, Role, Route, Routes

__all__ = ["ROUTES", "document"]

ROUTES = Routes()
_REF = "#/components/schemas/{name}"
_SCHEME = "token"
_NAMES = {
    "digest": "Of a list of held deletes, as `GET /v1/deletes` names it.",
    "task": "Id of a task: 32 lower-case hex digits, made by the sender.",
    "attempt": "Id of an attempt of a task of a job: 32 lower-case hex digits, made by it.",
    "number": "Of a file in the attempt, from 0 on.",
    "upload": "Id of an upload, as its Location had it.",
    "sender": "uuid of a sender.",
    "node": "uuid of a storage node, the beginning of one, or its name.",
    "table": "id of a table, or its name.",
    "tablet": "id of a tablet.",
    "token": "Id of a token.",
    "cursor": "`next` of the page before.",
    "txn": "Id of a transaction, as its begin gave it.",
    "name": "Of a file, as `GET /v1/log` has it: a segment, a checkpoint, or the tlog.",
}
_SENDER = Parameter(
    wire.SENDER_HEADER,
    "header",
    {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "uuid of the sender; without it the one that the token is for.",
)
_EPOCH = Parameter(
    wire.EPOCH_HEADER, "header", {"type": "string"}, "The epoch that the start of the task gave."
)


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The description of these calls."""
    rows = tuple(routes)
    kinds = {wire.Problem}
    for row in rows:
        kinds.update(answer.kind for answer in row.answers if answer.kind not in (None, Any))
        kinds.update({row.takes} - {None})
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.template, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tsferry receiver",
            "version": common.__version__,
            "summary": "Takes TsFiles in, verifies and loads them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {_SCHEME: {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(row: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": row.name,
        "summary": row.summary,
        "tags": [row.role.name.lower()],
        "parameters": [
            *(_argument(name) for name in row.arguments),
            *(_parameter(each) for each in _parameters(row)),
        ],
        "responses": {str(answer.status): _answer(answer) for answer in row.answers},
    }
    operation["responses"]["default"] = _problem()
    if row.media:
        operation["requestBody"] = _body(row)
    if row.role is not Role.PUBLIC:
        # Without tokens a receiver lets those in who come from its own machine.
        operation["security"] = [{_SCHEME: []}]
        if row.role in (Role.SENDER, Role.READER):
            operation["security"].append({})
    return operation


def _parameters(row: Route) -> Iterable[Parameter]:
    if row.role is Role.SENDER:
        yield _SENDER
    if row.task:
        yield _EPOCH
    yield from row.parameters


def _argument(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": _NAMES[name],
        "schema": {"type": "string"},
    }


def _parameter(each: Parameter) -> dict[str, Any]:
    return {
        "name": each.name,
        "in": each.place,
        "required": each.required,
        "description": each.meaning,
        "schema": dict(each.schema),
    }


def _body(row: Route) -> dict[str, Any]:
    if row.takes is None:
        # OpenAPI 3.1 describes raw bytes by saying nothing of them.
        return {"required": row.method != "POST", "content": {row.media: {}}}
    schema = {"$ref": _REF.format(name=row.takes.__name__)}
    return {"required": True, "content": {row.media: {"schema": schema}}}


def _answer(answer: AnswerRow) -> dict[str, Any]:
    described: dict[str, Any] = {"description": answer.meaning}
    if answer.headers:
        described["headers"] = {
            each.name: {
                "description": each.meaning,
                "required": each.required,
                "schema": dict(each.schema),
            }
            for each in answer.headers
        }
    if answer.raw:
        described["content"] = {answer.raw: {}}
    elif answer.kind is Any:
        described["content"] = {JSON: {"schema": {"type": "object"}}}
    elif answer.kind is not None:
        schema = {"$ref": _REF.format(name=answer.kind.__name__)}
        described["content"] = {JSON: {"schema": schema}}
    return described


def _problem() -> dict[str, Any]:
    schema = {"$ref": _REF.format(name=wire.Problem.__name__)}
    return {
        "description": "an error: what was found, and what to do",
        "headers": {
            "Retry-After": {
                "description": "Seconds until another try makes sense.",
                "schema": {"type": "integer"},
            }
        },
        "content": {wire.PROBLEM_TYPE: {"schema": schema}},
    }


@ROUTES.call("GET", "/openapi.json", Role.PUBLIC, "This document", AnswerRow(200, Any), reads=True)
def openapi(call: Call) -> Response:
    """This document."""
    return Response(call.site.openapi(), mimetype=JSON)
