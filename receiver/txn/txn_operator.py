"""The operator of a transaction: it takes the write set to whom it concerns.

That is one participant, the engine of this receiver, and its one commit is the transaction's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from receiver.txn.errors import WriteConflictError
from receiver.txn.unseen import unseen_below

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.commit.recent_commits import JudgedOps
    from receiver.metadata.engine import Engine

__all__ = ["TxnOperator"]

_ATTEMPTS: Final = 50


class TxnOperator:
    """Commits one transaction; belongs to it alone.

    Attributes:
        engine: the participant.
        id: of the transaction.
    """

    __slots__ = ("_read_ts", "engine", "id")

    def __init__(self, engine: Engine, ident: int, read_ts: int) -> None:
        self.engine = engine
        self.id = ident
        self._read_ts = read_ts

    def commit_judged(self, judged: JudgedOps) -> int:
        """The same as `commit`, of a write set of which all is known that the rules said of it."""
        try:
            return self.engine.commit_judged(judged, records.TxnCommitted(self.id))
        except GuardFailed as error:
            raise _conflict(error, self._read_ts) from error
        except RefusedCommitError as error:
            self._blame_others(error)
            raise

    def commit(self, ops: Sequence[records.Op], guards: Sequence[Guard]) -> int:
        """Make a write set true, all or nothing; returns the timestamp of the commit.

        Args:
            ops: the write set, in its order.
            guards: a row each that it changes, as the transaction saw it.

        Raises:
            WriteConflictError: one of the rows was changed since, or a rule does not hold any more
                because of what was committed since.
            TsferryError: as `Engine.commit`.
        """
        whole = [*ops, records.TxnCommitted(self.id)]
        groups = [op.path for op in ops if isinstance(op, records.StorageGroupDeleted)]
        for attempt in range(_ATTEMPTS):
            checked = [*guards]
            if groups:
                checked.append(self._nothing_unseen(groups))
            try:
                return self.engine.commit(whole, checked)
            except GuardFailed as error:
                if error.extra.get("table") == "state" and attempt < _ATTEMPTS - 1:
                    continue  # something was committed; whether it matters is looked at again
                raise _conflict(error, self._read_ts) from error
            except RefusedCommitError as error:
                self._blame_others(error)
                raise
        raise AssertionError

    def _blame_others(self, error: RefusedCommitError) -> None:
        """Each statement was taken by the same rules: what they say now is another's doing."""
        if self.engine.newest_commit != self._read_ts:
            raise WriteConflictError(
                f"what was committed since it began is against it: {error.message}",
                extra=dict(error.extra),
            ) from error

    def _nothing_unseen(self, groups: Sequence[str]) -> Guard:
        """What is in storage groups that go was seen by the transaction; holds until a commit."""
        with self.engine.reading() as state:
            found = unseen_below(state, groups, self._read_ts)
            if found is not None:
                raise WriteConflictError(
                    f"{found} was changed since the transaction began; it would be deleted unseen",
                    extra={"path": found},
                )
            return Guard("state", "", state.newest)


def _conflict(error: GuardFailed, read_ts: int) -> WriteConflictError:
    """The error of a transaction of which another commit changed a row first."""
    table, key, changed = (error.extra.get(each) for each in ("table", "key", "changed"))
    return WriteConflictError(
        f"{table} {key!r} was changed by commit {changed}, after the transaction began at "
        f"{read_ts}; nothing of it was committed, begin it anew",
        extra={"table": table, "key": key, "changed": changed},
    )
