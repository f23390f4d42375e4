"""The calls that tell of tables and tablets: where the files of a storage group and a time are."""

from __future__ import annotations

from flask import Response

from common.errors import UsageError
from common.text_numbers import signed_number
from receiver.metadata.sql.executing import moment
from receiver.operator.namespace.table_changes import change_table, make_table, table_standing
from receiver.operator.namespace.table_lists import list_tables, list_tablets
from receiver.operator.views.table_views import (
    TableChange,
    TableRequest,
    TablesPage,
    TableStanding,
    TabletsPage,
)
from receiver.web.call import Call, json_answer
from receiver.web.routes import PAGE_AFTER, PAGE_LIMIT, AnswerRow, Parameter, Role, Routes

__all__ = ["ROUTES"]

ROUTES = Routes()
_AT = Parameter("at", "query", {"type": "string"}, "A commit timestamp, or a time; else now.")
_FROM = Parameter(
    "from",
    "query",
    {"type": "integer"},
    "Only what holds this time or later ones, as in the files, by partition or by a file.",
)
_TO = Parameter("to", "query", {"type": "integer"}, "Only what holds times before this one.")


@ROUTES.call(
    "GET",
    "/v1/tables",
    Role.OPERATOR,
    "Tables of what is loaded, by name: storage groups, and databases of the table model",
    AnswerRow(200, TablesPage),
    parameters=(_AT, PAGE_AFTER, PAGE_LIMIT),
    reads=True,
)
def tables(call: Call) -> Response:
    """Tables of what is loaded."""
    at = _reached(call)
    return json_answer(
        list_tables(call.looked_at, at=at, after=call.query("after"), limit=call.limit())
    )


@ROUTES.call(
    "POST",
    "/v1/tables",
    Role.OPERATOR,
    "Make a table, with tablets between partitions or times, before anything is loaded into it",
    AnswerRow(201, TableStanding),
    takes=TableRequest,
)
def make(call: Call) -> Response:
    """Make a table."""
    return json_answer(make_table(call.operator, call.body(TableRequest)), 201)


@ROUTES.call(
    "GET",
    "/v1/tables/<table>",
    Role.OPERATOR,
    "How a table stands: whether its tablets are where they are to be",
    AnswerRow(200, TableStanding),
)
def standing(call: Call) -> Response:
    """How a table stands."""
    return json_answer(table_standing(call.operator, call.arguments["table"]))


@ROUTES.call(
    "POST",
    "/v1/tables/<table>",
    Role.OPERATOR,
    "Say how many storage nodes are to have a table, or make further tablets of it",
    AnswerRow(200, TableStanding),
    takes=TableChange,
)
def alter(call: Call) -> Response:
    """Say something else of a table."""
    changed = change_table(call.operator, call.arguments["table"], call.body(TableChange))
    return json_answer(changed)


@ROUTES.call(
    "GET",
    "/v1/tables/<table>/tablets",
    Role.OPERATOR,
    "Tablets of a table, by its id or name: runs of its time partitions",
    AnswerRow(200, TabletsPage),
    parameters=(_FROM, _TO, _AT, PAGE_AFTER, PAGE_LIMIT),
    reads=True,
)
def tablets(call: Call) -> Response:
    """Tablets of a table."""
    at = _reached(call)
    page = list_tablets(
        call.looked_at,
        call.arguments["table"],
        begin=_time(call, "from"),
        end=_time(call, "to"),
        at=at,
        after=call.query("after"),
        limit=call.limit(),
    )
    return json_answer(page)


def _time(call: Call, name: str) -> int | None:
    """A time in the unit of the files, which may be before 1970."""
    text = call.query(name)
    if text is None:
        return None
    number = signed_number(text)
    if number is None:
        raise UsageError(f"{name}: expected a time, a whole number in the unit of the files")
    return number


def _reached(call: Call) -> str | None:
    """The moment that is asked about, which a node that follows has come to."""
    at = call.query("at")
    call.answering.reach(call.answering.engine.timestamp_at(moment(at)))
    return at
