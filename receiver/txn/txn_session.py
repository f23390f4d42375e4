"""A session: statements one after the other, with at most one transaction at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from receiver.metadata.sql import statements as sql
from receiver.metadata.sql.executing import (
    DELETES_HELD_FROM,
    StatementResult,
    execute,
)
from receiver.metadata.sql.parser import parse
from receiver.txn.errors import TxnActiveError, TxnMissingError

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.metadata.query.questions import At
    from receiver.txn.txn import Txn
    from receiver.txn.txn_manager import TxnManager

__all__ = ["TxnSession"]

_COLUMNS = ("transaction", "who", "reads as of", "age s", "idle s", "operations")


class TxnSession:
    """Carries out SQL: within its transaction where it has one, each for itself where not.

    Attributes:
        txn: the one that is active, None for none.
    """

    def __init__(
        self, engine: Engine, manager: TxnManager, txn: Txn | None = None, *, who: str = ""
    ) -> None:
        """Begin a session, or go on with one.

        Args:
            engine: that statements outside of a transaction are put to.
            manager: of its transactions.
            txn: that the session is in.
            who: is shown to have begun what is begun.
        """
        self.txn = txn
        self._engine = engine
        self._manager = manager
        self._who = who

    def begin(self) -> Txn:
        """A new transaction.

        Raises:
            TxnActiveError: the session is in one.
            BusyError: there are as many as there may be.
        """
        if self.txn is not None:
            raise TxnActiveError(
                f"the session is in transaction {self.txn.id}; commit it or roll it back first"
            )
        self.txn = self._manager.begin(self._who)
        return self.txn

    def commit(self) -> int:
        """Commit the transaction, which is over then, whatever comes of it; see `Txn.commit`.

        Raises:
            TxnMissingError: there is none.
        """
        txn, self.txn = self._active(), None
        return txn.commit()

    def rollback(self) -> None:
        """Give the transaction up.

        Raises:
            TxnMissingError: there is none.
        """
        txn, self.txn = self._active(), None
        txn.rollback()

    def close(self) -> None:
        """The session's end: what is not committed is rolled back."""
        if self.txn is not None:
            self.rollback()

    def run(
        self,
        statement: str | sql.Statement,
        *,
        at: At | str = None,
        fetch_size: int | None = None,
        held_from: int | None = DELETES_HELD_FROM,
    ) -> StatementResult:
        """Carry out a statement; see `execute`, whose arguments these are.

        Raises:
            TsferryError: as `execute`, `begin`, `commit`, `rollback`.
            UsageError: it cannot be carried out in a transaction.
        """
        if isinstance(statement, str):
            statement = parse(statement)
        match statement:
            case sql.BeginTransaction():
                txn = self.begin()
                said = f"transaction {txn.id} begun; it reads as of {txn.read_ts}"
                return StatementResult(statement, txn.read_ts, said)
            case sql.CommitTransaction():
                return StatementResult(statement, self.commit(), "committed")
            case sql.RollBackTransaction():
                self.rollback()
                return StatementResult(statement, self._engine.newest_commit, "rolled back")
            case sql.ShowTransactions():
                rows = [
                    (each.id, each.who, each.read_ts, round(each.age, 3), round(each.idle, 3),
                     each.written)
                    for each in self._manager.running()
                ]  # fmt: skip
                listed = (_COLUMNS, list(rows))
                return StatementResult(statement, self._engine.newest_commit, listed=listed)
        if self.txn is None:
            return execute(
                self._engine, statement, at=at, fetch_size=fetch_size, held_from=held_from
            )
        txn = self.txn
        result = txn.do(
            lambda: execute(
                txn.database, statement, at=at, fetch_size=fetch_size, held_from=held_from
            )
        )
        if result.answer is None:
            result.commit = 0  # what the database counted is no commit, or is somebody else's
        return result

    def _active(self) -> Txn:
        if self.txn is None:
            raise TxnMissingError("the session is in no transaction; `begin` begins one")
        return self.txn
