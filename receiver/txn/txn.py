"""A transaction, as whoever began it holds it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from common.errors import FailedSyncError, TsferryError
from receiver.metadata.model.errors import UnknownOutcomeError
from receiver.txn.errors import TxnEndedError
from receiver.txn.txn_readers import TxnDatabase, TxnKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.model.records import Op
    from receiver.txn.txn_store import TxnStore

__all__ = ["Txn", "TxnState"]

T = TypeVar("T")


class TxnState(StrEnum):
    """How far a transaction is."""

    ACTIVE = "active"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    UNKNOWN = "unknown"
    """The commit may be there or not: `TxnManager.outcome` finds out."""


_ACTIVE: Final = TxnState.ACTIVE
_COMMITTED: Final = TxnState.COMMITTED
"""Before Python 3.12 a member that is looked up in its class costs a call."""


class Txn:
    """One transaction; several threads may hold it, one at a time does something in it.

    Attributes:
        id: a number below 2^63, by which its outcome can be asked for.
        who: began it, as it is shown.
        began: when, by the clock of its manager.
        state: how far it is.
        error: why it was not committed, once it is over; None otherwise.
        commit_ts: of the commit, once it is there; the read time of one that wrote nothing.
        database: the schema as it sees it; `execute` of SQL takes it in the place of an engine.
    """

    state = _ACTIVE
    error: TsferryError | None = None
    commit_ts: int | None = None
    _keys: TxnKeys | None = None

    def __init__(
        self, ident: int, store: TxnStore, ended: Callable[[Txn], None], who: str = ""
    ) -> None:
        """Begin it.

        Args:
            ident: see there.
            store: its read time, and what it writes.
            ended: told of it when it is over.
            who: see there.
        """
        self.id = ident
        self.who = who
        self.began = store.used
        self.database = TxnDatabase(store)
        self._ended = ended
        self._store = store
        self._busy = store.busy

    @property
    def keys(self) -> TxnKeys:
        """The keys of the key-value store as it sees them."""
        keys = self._keys
        if keys is None:
            with self._busy:
                keys = self._keys = self._keys or TxnKeys(self._store)
        return keys

    @property
    def used(self) -> float:
        """When it was used last, by the clock of its manager."""
        return self._store.used

    @property
    def read_ts(self) -> int:
        """The commit as of which it reads."""
        return self._store.read_ts

    @property
    def written(self) -> int:
        """Operations that it has written."""
        return len(self._store.ops)

    @property
    def ctx(self) -> bytes:
        """What whoever goes on with it elsewhere needs: msgpack of [id, read time]."""
        return msgspec.msgpack.encode((self.id, self.read_ts))

    def __str__(self) -> str:
        """In words, for people."""
        return f"transaction {self.id}, {self.state}, {self.written} operations"

    def __repr__(self) -> str:
        return f"<Txn {self.id} {self.state} read_ts={self.read_ts} written={self.written}>"

    def do(self, work: Callable[[], T]) -> T:
        """Do something in it while nobody else does, if it is not over.

        Raises:
            TxnEndedError: it is over.
        """
        with self._busy:
            self._need_active()
            self._store.use()
            try:
                return work()
            finally:
                if self._store.over is None:  # it was used all the while
                    self._store.use()

    def write(self, ops: Sequence[Op]) -> None:
        """Take operations as records; see `TxnStore.write`."""
        self.do(lambda: self._store.write(ops))

    def commit(self) -> int:
        """Make what was written true, all or nothing; returns the commit, or the read time.

        Raises:
            WriteConflictError: a row was changed by somebody else; it is rolled back.
            TxnInterruptedError: a statement was cut off in the middle; it is rolled back.
            UnknownOutcomeError, FailedSyncError: whether it is there can be asked for by its id.
            TxnEndedError: it is over.
            TsferryError: as `Engine.commit`; it is rolled back.
        """
        with self._busy:
            self._need_active()
            lost = self._store.lost
            if lost is not None:
                self._end(TxnState.ROLLED_BACK, lost)
                raise type(lost)(lost.message, extra=dict(lost.extra))
            try:
                self.commit_ts = self._store.commit()
            except BaseException as error:
                known = error if isinstance(error, TsferryError) else None
                unknown = not isinstance(error, Exception) or _leaves_unknown(error)
                self._end(TxnState.UNKNOWN if unknown else TxnState.ROLLED_BACK, known)
                raise
            self._end(_COMMITTED)
            return self.commit_ts

    def rollback(self, why: TsferryError | None = None) -> None:
        """Give up what was written; one that is rolled back already stays so.

        Raises:
            TxnEndedError: it is committed, or may be.
        """
        with self._busy:
            if self.state is TxnState.ROLLED_BACK:
                return
            self._need_active()
            self._end(TxnState.ROLLED_BACK, why)

    def abandon(self, is_late: Callable[[], bool], why: TsferryError) -> None:
        """Roll it back if it is late; not while somebody does something in it."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            if self.state is not _ACTIVE:
                self._finish()  # a signal came in the middle of its end
            elif is_late():
                self._end(TxnState.ROLLED_BACK, why)
        finally:
            self._busy.release()

    def _need_active(self) -> None:
        if self.state is not _ACTIVE:
            raise TxnEndedError(self._store.over or "")

    def _end(self, state: TxnState, error: TsferryError | None = None) -> None:
        self.error = error
        self.state = state
        self._finish()

    def _finish(self) -> None:
        """Let go of all that an active one has; twice is harmless."""
        why = f": {self.error.message}" if self.error is not None else ""
        self._store.close(f"transaction {self.id} is {self.state}{why}")
        self._ended(self)


def _leaves_unknown(error: Exception) -> bool:
    """Whether a commit that failed so may be there all the same."""
    return isinstance(error, UnknownOutcomeError | FailedSyncError)
