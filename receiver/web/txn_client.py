"""A client of transactions over HTTP: one session, with at most one transaction at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from common.errors import TsferryError, UnreachableError
from receiver.metadata.sql.parser import parse
from receiver.metadata.sql.statements import CommitTransaction
from receiver.txn.errors import TxnActiveError, TxnEndedError, TxnMissingError
from receiver.web.sql_wire import SqlAnswer, SqlRequest
from receiver.web.txn_wire import TxnBegun, TxnOutcome

if TYPE_CHECKING:
    from receiver.operator.client import OperatorClient

__all__ = ["TxnClient"]

_TRIES: Final = 5
_PAUSE: Final = 0.5


class TxnClient:
    """The session of this process at a receiver.

        client = TxnClient(lambda: OperatorClient(config))
        client.begin()
        client.run("create timeseries root.a.d.s with datatype=float")
        client.commit()

    Args:
        server: gives the way to the receiver, anew for each call.
        sleep: waits for some seconds.

    Attributes:
        txn: id of the transaction that it is in, None for none.
    """

    def __init__(
        self, server: Callable[[], OperatorClient], sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self.txn: str | None = None
        self._server = server
        self._sleep = sleep

    def begin(self) -> str:
        """Begin a transaction; returns its id.

        Raises:
            TxnActiveError: the session is in one.
            TsferryError: as the server refused it.
        """
        if self.txn is not None:
            raise TxnActiveError(f"the session is in transaction {self.txn}")
        self.txn = self._server().ask("POST", "/v1/txn", TxnBegun).txn
        return self.txn

    def run(
        self,
        statement: str,
        at: int | str | None = None,
        size: int | None = None,
        wait: float | None = None,
    ) -> SqlAnswer:
        """Carry a statement out, in the transaction if there is one; `commit` and such as well.

        Args:
            statement: one.
            at: as of when it asks, where it does not say.
            size: rows of a page.
            wait: seconds for the end of a load; None: as long as the server likes to.

        Raises:
            TsferryError: as it was refused; `txn` is None behind it if the transaction is over.
        """
        request = SqlRequest(statement=statement, at=at, fetch_size=size, txn=self.txn, wait=wait)
        commits = self.txn is not None and _commits(statement)
        try:
            answer = self._server().ask("POST", "/v1/sql", SqlAnswer, body=request)
        except (UnreachableError, TxnMissingError):
            if not commits:
                self._look_whether_over()
                raise
            commit = self._found_out(self._need())
            return SqlAnswer(columns=[], rows=[], message="committed", commit=commit, next=None)
        except TsferryError:
            self._look_whether_over()
            raise
        self.txn = answer.txn
        return answer

    def commit(self) -> int:
        """Commit; returns the commit. If the answer is lost, what became of it is asked for.

        Raises:
            WriteConflictError: a row was changed by somebody else.
            TxnEndedError: it had been rolled back.
            UnreachableError: the receiver does not say; it may when this is called again.
            TsferryError: as the server refused it.
        """
        txn = self._need()
        try:
            told = self._server().ask("POST", f"/v1/txn/{txn}/commit", TxnOutcome)
        except (UnreachableError, TxnMissingError):
            return self._found_out(txn)
        except TsferryError:
            self.txn = None
            raise
        self.txn = None
        return _done(told)

    def rollback(self) -> None:
        """Roll back; what cannot be told is rolled back when the lease is over."""
        txn, self.txn = self._need(), None
        with suppress(UnreachableError):
            self._server().tell("DELETE", f"/v1/txn/{txn}")

    def outcome(self, txn: str) -> TxnOutcome:
        """What became of a transaction.

        Raises:
            TsferryError: the server does not say.
        """
        return self._server().ask("GET", f"/v1/txn/{txn}", TxnOutcome)

    def close(self) -> None:
        """The session's end: what is not committed is rolled back."""
        if self.txn is not None:
            with suppress(TsferryError):
                self.rollback()

    def _found_out(self, txn: str) -> int:
        """The commit of a transaction whose end was not told; `txn` stays until that is known."""
        try:
            told = self._find_out(txn)
        except UnreachableError:
            raise
        except TsferryError:
            self.txn = None
            raise
        self.txn = None
        return _done(told)

    def _find_out(self, txn: str) -> TxnOutcome:
        for left in reversed(range(_TRIES)):
            self._sleep(_PAUSE)
            try:
                told = self.outcome(txn)
            except UnreachableError:
                if not left:
                    raise
                continue
            if told.state != "active":
                return told
            with suppress(UnreachableError):  # the commit had not come there
                return self._server().ask("POST", f"/v1/txn/{txn}/commit", TxnOutcome)
        raise UnreachableError(f"the receiver does not say what became of transaction {txn}")

    def _look_whether_over(self) -> None:
        if self.txn is None:
            return
        with suppress(TsferryError):
            if self.outcome(self.txn).state != "active":
                self.txn = None

    def _need(self) -> str:
        if self.txn is None:
            raise TxnMissingError("the session is in no transaction")
        return self.txn


def _commits(statement: str) -> bool:
    try:
        return isinstance(parse(statement), CommitTransaction)
    except TsferryError:  # the server says so
        return False


def _done(told: TxnOutcome) -> int:
    if told.commit is None:
        raise TxnEndedError(f"transaction {told.txn} is {told.state}")
    return told.commit
