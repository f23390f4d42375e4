"""The manager: begins transactions, ends those that nobody uses, knows what became of each.

An id is the second of the newest commit when its transaction began, above 31 bits of `TxnNumbers`:
so ids grow, are used once, and cannot be guessed. In one process no number comes twice; those of
the next one may be the same, so its first second is behind all that is committed, and behind its
ids. A committed transaction has its id in its commit, so what became of it is found after a restart
as well. All others are over with the process: nothing of them was ever written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, NamedTuple

from common.errors import BusyError
from receiver.metadata.model.timestamps import to_seconds
from receiver.txn.errors import TxnEndedError, TxnForgottenError, TxnMissingError
from receiver.txn.txn import Txn, TxnState
from receiver.txn.txn_numbers import NUMBER_BITS, TxnNumbers
from receiver.txn.txn_operator import TxnOperator
from receiver.txn.txn_store import TxnStore

if TYPE_CHECKING:
    from types import TracebackType

    from receiver.metadata.engine import Engine

__all__ = ["LEASE", "MOST_ACTIVE", "RunningTxn", "TxnFate", "TxnManager"]

LEASE: Final = 60.0
MOST_ACTIVE: Final = 100
_KEPT_UNKNOWN: Final = 10_000
_ACTIVE: Final = TxnState.ACTIVE
_UNKNOWN: Final = TxnState.UNKNOWN


class TxnFate(NamedTuple):
    """What became of a transaction.

    Attributes:
        state: `committed`; `active`, while it is neither; or `rolled back`: nothing of it is
            committed, nor will be. The first and the last are for ever.
        commit: of a committed one.
    """

    state: TxnState
    commit: int | None = None


class RunningTxn(NamedTuple):
    """A transaction that is not over, as it is shown.

    Attributes:
        id: of it.
        who: began it.
        read_ts: the commit as of which it reads.
        age: seconds since it began.
        idle: seconds since it was used.
        written: operations that it has written.
    """

    id: int
    who: str
    read_ts: int
    age: float
    idle: float
    written: int


class _Block:
    """See `TxnManager.transaction`; a generator would take three times as long."""

    __slots__ = ("_manager", "_txn", "_who")

    def __init__(self, manager: TxnManager, who: str) -> None:
        self._manager, self._who = manager, who

    def __enter__(self) -> Txn:
        txn = self._txn = self._manager.begin(self._who)
        return txn

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        txn = self._txn
        if txn.state is not _ACTIVE:
            return
        if kind is None:
            txn.commit()
        else:
            txn.rollback()


class TxnManager:
    """The transactions of an engine, for all threads; one an engine.

    Args:
        engine: the one participant.
        lease: seconds without a use, until a transaction is rolled back; so long, and no longer,
            the history that it reads is kept for it.
        most: transactions at a time.
        clock: seconds that nobody sets.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        lease: float = LEASE,
        most: int = MOST_ACTIVE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._lease = lease
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._forks: set[int] = set()
        self._held: dict[int, Txn] = {}
        self._next_sweep = clock()
        self._unknown: dict[int, None] = {}
        self._pins: dict[int, tuple[int, float]] = {}
        self._numbers = TxnNumbers()
        with engine.reading() as state:
            known = max(state.txn_table.forgotten, *state.txn_table.rows, 0)
            newest = int(to_seconds(state.newest))
        self._first_second = max(newest, known >> NUMBER_BITS) + 1
        engine.window.needed = self._oldest_needed
        engine.begins = self.transaction

    def begin(self, who: str = "") -> Txn:
        """A new transaction, which reads what is committed now.

        Raises:
            BusyError: there are as many as there may be.
        """
        now = self._clock()
        if now >= self._next_sweep or len(self._pins) >= self._most:
            self.sweep()
        engine = self._engine
        ident = self._pinned(now)
        try:
            # Only now: the window stands before whatever is newest behind the pin.
            read_ts = engine.newest_commit
            operator = TxnOperator(engine, ident, read_ts)
            store = TxnStore(operator, read_ts, self._forks, self._clock, now, self._hold)
            txn = self._held[ident] = Txn(ident, store, self._ended, who)
        except BaseException:
            del self._pins[ident]
            raise
        return txn

    @property
    def lease(self) -> float:
        """Seconds without a use, until a transaction is rolled back."""
        return self._lease

    def transaction(self, who: str = "") -> AbstractContextManager[Txn]:
        """`with ... as txn`: committed at the end, rolled back if an error leaves the block."""
        return _Block(self, who)

    def get(self, ident: int) -> Txn:
        """A transaction that is not over.

        Raises:
            TxnMissingError: it is over, or never was.
        """
        self.sweep()
        txn = self._held.get(ident)
        if txn is None:
            raise TxnMissingError(f"there is no transaction {ident}; it is over, or was not used")
        return txn

    def outcome(self, ident: int) -> TxnFate:
        """What became of a transaction, as it will be answered for ever once it is over.

        Raises:
            TxnForgottenError: it is too long ago to say.
            ReadOnlyError, UnreachableError: its commit was cut off; it shows at the next start, or
                when the remote log answers.
        """
        self.sweep()
        # In this order: one that ends between the two looks is in the table by then.
        if ident in self._held:
            return TxnFate(TxnState.ACTIVE)
        if ident in self._unknown:
            self._engine.settle()
        with self._engine.reading() as state:
            row = state.txn_table.rows.get(ident)
            forgotten = state.txn_table.forgotten
        if row is not None:
            return TxnFate(TxnState.COMMITTED, row.created)
        if ident <= forgotten:
            raise TxnForgottenError(f"what became of transaction {ident} is too long ago to say")
        return TxnFate(TxnState.ROLLED_BACK)

    def running(self) -> list[RunningTxn]:
        """All that are not over, the oldest first."""
        self.sweep()
        now = self._clock()
        return [
            RunningTxn(
                each.id, each.who, each.read_ts, now - each.began, now - each.used, each.written
            )
            for each in list(self._held.values())
        ]

    def sweep(self) -> None:
        """Roll back what nobody used for longer than the lease."""
        now = self._clock()
        self._next_sweep = now + self._lease / 10
        limit = now - self._lease
        late = [each for each in list(self._held.values()) if each.used < limit]
        for txn in late:
            why = TxnEndedError(f"nobody used it for {self._lease:g} s")
            txn.abandon(lambda txn=txn: txn.used < limit, why)  # type: ignore[misc]
        for ident, (_, until) in list(self._pins.items()):
            if until < now and ident not in self._held:  # a signal came in the middle of its begin
                self._pins.pop(ident, None)

    def close(self) -> None:
        """Roll back all that are not over."""
        for txn in list(self._held.values()):
            try:
                txn.rollback(TxnEndedError("the receiver is stopped"))
            except TxnEndedError:
                continue

    def _pinned(self, now: float) -> int:
        """The id of a new transaction, for which what is newest now is kept for a lease.

        Without the lock of readers, in whose line all would stand: the window moves at most to what
        was newest when it asked for the pins. If it did not see this one, it stands before whatever
        is newest once the pin is there; if it did, it stands before the pin.

        Without any lock, since whoever loses the processor while it has one makes a line of all
        that begin: a pin is put in, then counted. Of two that want the last place at one moment
        none may get it, and never do both.
        """
        pins, newest = self._pins, self._engine.newest_commit
        pin = newest, now + self._lease
        ident = self._new_id(newest)
        while pins.setdefault(ident, pin) is not pin:
            ident = self._new_id(newest)
        if len(pins) > self._most:
            del pins[ident]
            raise BusyError(
                f"{self._most} transactions are open; try again when one of them is over",
                retry_after=1.0,
            )
        return ident

    def _hold(self, ident: int) -> bool:
        """Keep for a commit what its transaction reads, if that is not sure to be kept so long.

        Returns:
            whether it was not; then part of it may have gone before.
        """
        now = self._clock()
        pin = self._pins.get(ident)
        if pin is not None and pin[1] - now > self._lease / 2:
            return False
        if pin is not None:
            self._pins[ident] = pin[0], now + self._lease
        return True

    def _new_id(self, newest: int) -> int:
        second = max(int(to_seconds(newest)), self._first_second)
        return second << NUMBER_BITS | self._numbers.take()

    def _ended(self, txn: Txn) -> None:
        if txn.state is _UNKNOWN:
            with self._lock:
                self._unknown[txn.id] = None
                while len(self._unknown) > _KEPT_UNKNOWN:
                    del self._unknown[next(iter(self._unknown))]
        self._held.pop(txn.id, None)
        self._pins.pop(txn.id, None)

    def _oldest_needed(self) -> int | None:
        """The oldest read time that is still kept for a transaction; waits for nothing."""
        now = self._clock()
        return min((ts for ts, until in list(self._pins.values()) if until > now), default=None)
