"""Transactions over HTTP: begun, committed, rolled back, and asked for by their ids.

Statements go to `POST /v1/sql` with the id. There is no session at the server but the transaction
itself: whoever goes away without an end is rolled back when its lease is over.
"""

from __future__ import annotations

from flask import Response

from common.errors import NotFoundError, ProtocolError
from common.text_numbers import whole_number
from receiver.txn.errors import TxnEndedError
from receiver.txn.txn_session import TxnSession
from receiver.web.call import Call, json_answer
from receiver.web.routes import EMPTY, AnswerRow, Role, Routes
from receiver.web.txn_wire import TxnBegun, TxnOutcome, TxnRunning, TxnsRunning

__all__ = ["ROUTES", "session_of"]

ROUTES = Routes()


def session_of(call: Call, txn: str | None) -> TxnSession:
    """The session of a request, which is in this transaction, or in none.

    Raises:
        ForbiddenError: whoever asks is no operator.
        NotTheWriterError: this is a node that follows.
        TxnMissingError: the transaction is over.
        ProtocolError: the id is none.
    """
    call.who.must_operate()
    node = call.node
    held = None if txn is None else node.transactions.get(_ident(txn))
    return TxnSession(node.engine, node.transactions, held, who=call.who.token_id or call.who.peer)


@ROUTES.call("POST", "/v1/txn", Role.OPERATOR, "Begin a transaction", AnswerRow(200, TxnBegun))
def begin_txn(call: Call) -> Response:
    """Begin a transaction."""
    txn = session_of(call, None).begin()
    lease = call.node.transactions.lease
    return json_answer(TxnBegun(txn=str(txn.id), read_ts=txn.read_ts, lease=lease))


@ROUTES.call(
    "GET",
    "/v1/txn",
    Role.OPERATOR,
    "The transactions that are not over",
    AnswerRow(200, TxnsRunning),
)
def running_txns(call: Call) -> Response:
    """The transactions that are not over."""
    call.who.must_operate()
    return json_answer(
        TxnsRunning(
            transactions=[
                TxnRunning(
                    txn=str(each.id),
                    who=each.who,
                    read_ts=each.read_ts,
                    age=each.age,
                    idle=each.idle,
                    operations=each.written,
                )
                for each in call.node.transactions.running()
            ]
        )
    )


@ROUTES.call(
    "GET",
    "/v1/txn/<txn>",
    Role.OPERATOR,
    "What became of a transaction: the same for ever, once it is over",
    AnswerRow(200, TxnOutcome),
)
def txn_outcome(call: Call) -> Response:
    """What became of a transaction."""
    call.who.must_operate()
    ident = _ident(call.arguments["txn"])
    return json_answer(_outcome(call, ident))


@ROUTES.call(
    "POST",
    "/v1/txn/<txn>/commit",
    Role.OPERATOR,
    "Commit a transaction; once more is answered as the first time",
    AnswerRow(200, TxnOutcome),
)
def commit_txn(call: Call) -> Response:
    """Commit a transaction."""
    txn = call.arguments["txn"]
    try:
        commit = session_of(call, txn).commit()
    except (NotFoundError, TxnEndedError):  # it may have ended by what was asked for before
        outcome = _outcome(call, _ident(txn))
        if outcome.commit is None:
            raise
        return json_answer(outcome)
    return json_answer(TxnOutcome(txn=str(_ident(txn)), state="committed", commit=commit))


@ROUTES.call("DELETE", "/v1/txn/<txn>", Role.OPERATOR, "Roll a transaction back", EMPTY)
def roll_back_txn(call: Call) -> Response:
    """Roll a transaction back."""
    session_of(call, call.arguments["txn"]).rollback()
    return Response(status=204)


def _outcome(call: Call, ident: int) -> TxnOutcome:
    found = call.node.transactions.outcome(ident)
    return TxnOutcome(txn=str(ident), state=found.state.value, commit=found.commit)


def _ident(text: str) -> int:
    ident = whole_number(text)
    if ident is None:
        raise ProtocolError("the id of a transaction is a number")
    return ident
