"""SQL over HTTP: a statement, and the further pages of a long answer.

A page can be asked for again, with the same token, until the next one is: an answer that got lost
on its way costs nothing.
"""

from __future__ import annotations

from typing import Any

from flask import Response

from common.errors import ForbiddenError, UsageError
from receiver.metadata.model.records import OPERATOR
from receiver.metadata.query.cursors import AnswerPage
from receiver.metadata.sql.executing import execute, moment
from receiver.metadata.sql.parser import parse
from receiver.metadata.sql.statements import LoadFiles, OfReceiver, TxnStatement, is_query
from receiver.operator.sql_loads import load_by_sql
from receiver.operator.sql_tables import tables_by_sql
from receiver.web.call import Call, json_answer
from receiver.web.handlers.txn_calls import session_of
from receiver.web.routes import EMPTY, Body, Parameter, Role, Routes
from receiver.web.routes import AnswerRow as Described
from receiver.web.sql_wire import SqlAnswer, SqlRequest

__all__ = ["ROUTES"]

ROUTES = Routes()
_SIZE = Parameter(
    "limit", "query", {"type": "integer", "minimum": 1}, "Rows of this page and the next ones."
)


@ROUTES.call(
    "POST",
    "/v1/sql",
    Role.SQL,
    "Carry out a statement; the first page of its answer",
    Described(200, SqlAnswer),
    takes=SqlRequest,
    body=Body.LARGE,
    reads=True,
)
def run_sql(call: Call) -> Response:
    """Carry out a statement; the first page of its answer."""
    request = call.body(SqlRequest)
    if request.fetch_size is not None and request.fetch_size < 1:
        raise UsageError("fetch_size: expected a number from 1 up")
    statement, at = parse(request.statement), moment(request.at)
    engine = call.answering.engine
    if is_query(statement) and request.txn is None:
        call.answering.reach(engine.timestamp_at(at if statement.at is None else statement.at))
    else:
        elsewhere = call.answering.not_the_writer() or call.answering.displaced()
        if elsewhere is not None:
            raise elsewhere
        if call.who.role != OPERATOR:
            raise ForbiddenError(f"a {call.who.role} token may only show and count")
        call.audited(request.statement)
    if isinstance(statement, OfReceiver):
        return _by_receiver(call, statement, request)
    deletes = call.site.config.deletes
    held_from = deletes.from_files if deletes.max_fraction < 1 else None
    txn: str | None = None
    if request.txn is None and not isinstance(statement, TxnStatement):
        result = execute(engine, statement, at=at, held_from=held_from)
    else:
        session = session_of(call, request.txn)
        result = session.run(statement, at=at, held_from=held_from)
        txn = None if session.txn is None else str(session.txn.id)
    if result.answer is None:
        page = AnswerPage(result.fetch(), None)
    else:
        most = engine.options.fetch_size
        page = call.site.cursors.open(result.answer, min(request.fetch_size or most, most))
    return _answer(call, result.columns, result.message, result.commit, page, txn)


@ROUTES.call(
    "GET",
    "/v1/sql/<cursor>",
    Role.SQL,
    "The next page of an answer; the same page again until the one behind it is asked for",
    Described(200, SqlAnswer),
    parameters=(_SIZE,),
    reads=True,
)
def sql_page(call: Call) -> Response:
    """The next page of an answer."""
    size = call.limit()
    if size is not None:
        size = min(size, call.answering.engine.options.fetch_size)
    answer, page = call.site.cursors.next(call.arguments["cursor"], size)
    return _answer(call, answer.columns, None, answer.ts, page)


@ROUTES.call(
    "DELETE", "/v1/sql/<cursor>", Role.SQL, "Forget the rest of an answer", EMPTY, reads=True
)
def close_sql(call: Call) -> Response:
    """Forget the rest of an answer."""
    call.site.cursors.close(call.arguments["cursor"])
    return Response(status=204)


def _by_receiver(call: Call, statement: OfReceiver, request: SqlRequest) -> Response:
    """What became of files; of a load that takes longer, how to ask. How a table stands."""
    if request.txn is not None:
        what = "a load" if isinstance(statement, LoadFiles) else "a table"
        raise UsageError(f"{what} is a commit of its own: expected behind commit or rollback")
    columns: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = []
    load: str | None = None
    if isinstance(statement, LoadFiles):
        allowed = call.site.config.load.paths
        columns, rows, message, load = load_by_sql(call.operator, statement, allowed, request.wait)
    else:
        message = tables_by_sql(call.operator, statement)
    page = AnswerPage(rows, None)
    newest = call.answering.engine.newest_commit
    return _answer(call, columns, message, newest, page, load=load)


def _answer(
    call: Call,
    columns: tuple[str, ...],
    message: str | None,
    commit: int,
    page: AnswerPage,
    txn: str | None = None,
    load: str | None = None,
) -> Response:
    rows: list[Any] = page.rows  # tuples are as good as lists in JSON
    return json_answer(
        SqlAnswer(
            columns=list(columns),
            rows=rows,
            message=message,
            commit=commit,
            next=page.next,
            clock=call.answering.engine.times.pieces,
            txn=txn,
            load=load,
        )
    )
