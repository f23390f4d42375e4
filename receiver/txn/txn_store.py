"""The store of a transaction: the time it reads at, and what it has written so far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from common.errors import BusyError, ConflictError, TooLargeError, TsferryError
from receiver.metadata.commit.draft import Draft, examine
from receiver.metadata.commit.guards import Guard, UnchangedGuard
from receiver.metadata.commit.recent_commits import JudgedOps
from receiver.metadata.commit.touched import Touched
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.model.paths import Nodes, format_path, parse_stored
from receiver.metadata.model.tag_layout import layout
from receiver.txn.errors import TxnEndedError, TxnInterruptedError, WriteConflictError
from receiver.txn.own_state import SCHEMA_OPS, OwnState
from receiver.txn.write_rows import Changed, schema_rows, table_rows

if TYPE_CHECKING:
    from receiver.metadata.state.state import State
    from receiver.txn.txn_operator import TxnOperator

__all__ = ["MOST_FORKS", "MOST_OPS", "TxnStore"]

MOST_FORKS: Final = 4
"""Transactions that have a copy of the schema at a time, each as large as the schema is."""
MOST_OPS: Final = 10_000
"""Operations of a transaction; a device with its series is one."""
_SEEN: Final = frozenset((*SCHEMA_OPS, records.OwnerSet, records.SeriesLoaded))
_LIGHT: Final = frozenset((records.SeriesCreated, records.AliasSet, records.TagsSet))
"""No commit adds anything to these; to a TTL it does, where there are tables."""
_MOST_BYTES: Final = 4 << 20


class TxnStore:
    """Write set and read time; several threads may use it, one after the other.

    What is written is judged at once, by the rules of a commit, over what is committed now. A row
    that was changed since the read time is a conflict: whoever else came first has won.

    Attributes:
        operator: that commits it.
        read_ts: the commit as of which is read.
        ops: the write set, in the order in which it was written.
        statements: times that something was written.
        busy: held while something is done in it.
        used: when it was used last, by the clock that was handed in.
        over: why nothing more is done in it, once that is so.
        has_written_schema: whether the schema that it sees is another than what was committed at
            the read time.
        lost: the conflict that it has met, or that a statement was cut off; it cannot be committed
            any more.
    """

    over: str | None = None
    has_written_schema = False
    lost: WriteConflictError | TxnInterruptedError | None = None
    statements = 0
    _draft: Draft | None = None
    _dropped: frozenset[str] = frozenset()
    _groups: frozenset[str] = frozenset()
    _is_light = True
    _judged_ts = 0
    _own: OwnState | None = None
    _size = 0
    _touched: Touched | None = None

    def __init__(
        self,
        operator: TxnOperator,
        read_ts: int,
        forks: set[int],
        clock: Callable[[], float],
        now: float,
        hold: Callable[[int], bool],
    ) -> None:
        """Begin with nothing written.

        Args:
            operator: that commits it.
            read_ts: see there.
            forks: the ids of the transactions that have a schema of their own, for all of them.
            clock: seconds that nobody sets.
            now: by it.
            hold: see `TxnManager`.
        """
        self.busy = threading.RLock()
        self.operator = operator
        self.ops: list[records.Op] = []
        self.read_ts = read_ts
        self.used = now
        self._clock = clock
        self._engine = operator.engine
        self._forks = forks
        self._guards: dict[Changed, Guard] = {}
        self._hold = hold
        self._pieces: list[bytes] = []

    def knows_group(self, device: Nodes) -> bool:
        """Whether a device lies in a storage group, of the transaction or of what is committed."""
        groups = self._groups
        if groups and any(format_path(device[:end]) in groups for end in range(2, len(device) + 1)):
            return True
        with self._engine.reading() as state:
            group = state.schema.groups.of(device)
        return group is not None and not (self._dropped and format_path(group) in self._dropped)

    def own_state(self) -> OwnState:
        """The schema as the transaction sees it, made at the first call; see `OwnState`."""
        with self.busy:
            if self._own is None:
                self.use()
                self._own, self._draft = self._fork(), None
            return self._own

    def _fork(self) -> OwnState:
        forks, ident = self._forks, self.operator.id
        forks.add(ident)  # first, then counted: of two that want the last place none may get it
        if len(forks) > MOST_FORKS:
            forks.discard(ident)
            raise BusyError(
                "as many transactions look at what they wrote as may at a time; try again when one "
                "of them is over",
                retry_after=1.0,
            )
        try:
            own = OwnState(self._engine, self.read_ts)
            if not any(isinstance(op, records.SeriesLoaded) for op in self.ops):
                own.judge([op for op in self.ops if isinstance(op, SCHEMA_OPS)])
            own.apply(self.ops)
        except BaseException as error:
            forks.discard(ident)
            if isinstance(error, RefusedCommitError):  # it was right by what came since alone
                raise self._contradicted(error) from error
            raise
        return own

    def use(self) -> None:
        """Somebody does something in it.

        Raises:
            TxnEndedError: it is over.
        """
        if self.over is not None:
            raise TxnEndedError(self.over)
        self.used = self._clock()

    def close(self, why: str) -> None:
        """Nothing more is done in it, its memory goes; for who holds `busy`. Twice is harmless."""
        self.over = why
        self._own = self._draft = None
        self._forks.discard(self.operator.id)

    def write(self, ops: Sequence[records.Op]) -> None:
        """Take operations into the write set, all or none.

        Raises:
            WriteConflictError: a row that they change was changed since the read time.
            TooLargeError: the write set would be larger than a transaction's may be.
            RefusedCommitError: a rule is against them; what was written before stands.
        """
        with self.busy:
            self.use()
            try:
                self._write(ops)
            except TsferryError:
                raise
            except BaseException as error:
                self._cut_off(error)
                raise

    def _write(self, ops: Sequence[records.Op]) -> None:
        ops, pieces, size = self._stored(ops)
        guards: list[Guard] = []
        with self._engine.reading() as state:
            self._see_kept()
            if not (self._is_light and self._take_lightly(state, ops)):
                self._guard_all()
                self._see_unchanged(state, _rows_of(ops), guards)
                self._see_groups(state, ops)
                touched = self._judge(state, ops)
                self._see_unchanged(state, touched, guards)
        self._take(ops, guards)
        self._grow(ops, pieces, size)

    def _cut_off(self, error: BaseException) -> None:
        """A signal, or no memory: what was taken may be a part of it, or not of its bytes."""
        self.lost = TxnInterruptedError(
            f"a statement of transaction {self.operator.id} was cut off in the middle ({error!r}), "
            "so nothing of it can be committed; roll it back and begin it anew"
        )

    def write_new(self, op: records.SeriesCreated) -> bool:
        """Take new series of a device that lies in a storage group, if nothing is against it.

        So most get by with one look at what is committed.

        Returns:
            False where something may be; then nothing is taken, and `write` finds out.
        """
        with self.busy:
            self.use()
            if not self._is_light:
                return False
            try:
                ops, pieces, size = self._stored((op,))
                with self._engine.reading() as state:
                    self._see_kept()
                    if not self._take_lightly(state, ops):
                        return False
                self.has_written_schema = True
                self._grow(ops, pieces, size)
            except TsferryError:
                raise
            except BaseException as error:
                self._cut_off(error)
                raise
            return True

    def _stored(self, ops: Sequence[records.Op]) -> tuple[list[records.Op], list[bytes], int]:
        """Operations as they are read back from their bytes, and these: the commit needs both.

        Also how many bytes the write set has with them.

        Raises:
            TooLargeError: the write set, or the tlog, has no room for them.
            RefusedCommitError: they cannot be stored.
        """
        try:
            pieces = list(map(records.encode_op, ops))
            stored = list(map(records.decode_op, pieces))
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise RefusedCommitError(f"operations that cannot be stored: {error}") from error
        size = self._size + sum(map(len, pieces))
        if len(self.ops) + len(ops) > MOST_OPS or size > _MOST_BYTES:
            raise TooLargeError(
                f"a transaction has at most {MOST_OPS} operations, of {_MOST_BYTES} bytes; commit "
                "in parts"
            )
        layout(stored, 0, limit=self._engine.options.tag_bytes)
        return stored, pieces, size

    def _take(self, ops: Sequence[records.Op], guards: Sequence[Guard]) -> None:
        """Let what the transaction sees be as operations that were judged make it."""
        if self._own is not None:
            with self._own.reading.writing():
                self._own.apply(ops)
        for guard in guards:
            self._guards[guard.table, guard.key] = guard
        for op in ops:
            if isinstance(op, records.StorageGroupSet):
                self._groups |= {op.path}
            elif isinstance(op, records.StorageGroupDeleted):
                self._groups -= {op.path}
                self._dropped |= {op.path}
        self.has_written_schema |= not _SEEN.isdisjoint(map(type, ops))

    def _grow(self, ops: list[records.Op], pieces: list[bytes], size: int) -> None:
        self._size = size
        self.ops += ops
        self._pieces += pieces
        self.statements += 1

    def commit(self) -> int:
        """Hand the write set to the operator; an empty one commits nothing, at the read time.

        Raises:
            see `TxnOperator.commit`.
        """
        if not self.ops:
            return self.read_ts
        if self._hold(self.operator.id):
            with self._engine.reading():
                self._see_kept()
        if self._touched is not None and self._is_light:
            return self.operator.commit_judged(
                JudgedOps(
                    self.ops, self._pieces, self._judged_ts, self._touched, self._light_guards
                )
            )
        return self.operator.commit(self.ops, list(self._guards.values()))

    # -- judging -----------------------------------------------------------------------------

    def _take_lightly(self, state: State, ops: Sequence[records.Op]) -> bool:
        """Judge operations with which nothing that was committed since the read time has to do.

        Then no row of theirs was changed, and no look at each is needed; and what was judged here
        holds until something that has to do with it is committed (`RecentCommits`).

        Returns:
            whether they are such, and the rules take them. If not, nothing is taken, and the long
            way says what is wrong.
        """
        if self._own is not None or state.max_memory is not None or not _are_light(ops):
            return False
        is_behind = state.newest != self.read_ts
        try:
            if not self.ops and self._draft is None:  # most are of one statement
                touched = examine(state, ops)
                if is_behind:
                    self._see_alone(touched)
            else:
                if is_behind and self._touched is not None:
                    self._see_alone(self._touched)
                draft = self._draft_over(state)
                with draft.all_or_nothing():
                    draft.take(ops)
                    touched = draft.touched
                    if is_behind:
                        self._see_alone(touched)
        except TsferryError:
            return False
        self._judged_ts, self._touched = state.newest, touched
        return True

    def _see_kept(self) -> None:
        """See that it can be told what was changed since the read time: deletions are history."""
        oldest = self._engine.oldest_answerable
        if self.read_ts < oldest:
            self.lost = WriteConflictError(
                f"the transaction began at {self.read_ts}, before the kept history, which begins "
                f"at {oldest}: whether others changed what it writes is not known any more; roll "
                "it back and begin it anew",
                extra={"oldest": oldest},
            )
            raise self.lost

    def _see_alone(self, touched: Touched) -> None:
        if not self._engine.left_alone(self.read_ts, touched):
            raise ConflictError("something that may have to do with it was committed")

    def _light_guards(self) -> list[Guard]:
        """Of what was written, where all of it was taken lightly."""
        return [UnchangedGuard(*row, self.read_ts) for row in _rows_of(self.ops)]

    def _guard_all(self) -> None:
        """From now on each row has a guard of its own."""
        if self._is_light:
            self._is_light = False
            for guard in self._light_guards():
                self._guards[guard.table, guard.key] = guard

    def _see_unchanged(self, state: State, rows: Sequence[Changed], guards: list[Guard]) -> None:
        for row in rows:
            if row in self._guards:
                continue
            table, key = row
            changed = state.changed(table, key)
            if changed > self.read_ts:
                raise self.conflict(table, key, changed)
            guards.append(Guard(table, key, changed))

    def _see_groups(self, state: State, ops: Sequence[records.Op]) -> None:
        """A series that is made lies in a storage group that the transaction knows."""
        schema = state.schema
        for op in ops:
            if not isinstance(op, records.SeriesCreated):
                continue
            group = schema.groups.of(parse_stored(op.device))
            if group is None or format_path(group) in self._groups:
                continue
            created = schema.tree.created[schema.tree.find(group)]
            if created > self.read_ts:
                raise self.conflict("storage_group", format_path(group), created)

    def _judge(self, state: State, ops: Sequence[records.Op]) -> list[Changed]:
        """See that the rules take operations; the rows of tables that they change."""
        if self._own is not None and all(isinstance(op, SCHEMA_OPS) for op in ops):
            self._own.judge(ops)
            return []
        if not self.ops and self._draft is None:  # most are of one statement: none comes behind it
            try:
                return list(table_rows(examine(state, ops).written))
            except TsferryError as refused:
                self._blame(state, refused)
                raise
        draft = self._draft_over(state)
        draft.touched.written.clear()
        error = draft.attempt(ops)
        if error is not None:
            self._blame(state, error)
            raise error
        return list(table_rows(draft.touched.written))

    def _draft_over(self, state: State) -> Draft:
        """What is committed, with what was written; made once.

        What is committed moves on beneath it. What was taken before may be against the rules then,
        and is not looked at again here: the commit judges all of it.
        """
        if self._draft is None:
            draft = Draft(state, notes=True)
            error = draft.attempt(self.ops) if self.ops else None
            if error is not None:
                raise self._contradicted(error) from error
            self._draft = draft
        return self._draft

    def _contradicted(self, error: TsferryError) -> WriteConflictError:
        self.lost = WriteConflictError(
            "what was committed since the transaction began is against what it wrote: "
            f"{error.message}",
            extra=dict(error.extra),
        )
        return self.lost

    def _blame(self, state: State, error: TsferryError) -> None:
        """A refusal that rests on a series that was changed since is a conflict."""
        path = error.extra.get("path")
        if (
            state.newest == self.read_ts
            or not isinstance(path, str)
            or not path.startswith("root.")
        ):
            return
        for table in ("series", "storage_group"):
            changed = state.changed(table, path)
            if changed > self.read_ts:
                raise self.conflict(table, path, changed) from error

    def conflict(self, table: str, key: object, changed: int) -> WriteConflictError:
        """The error of a row that another commit changed first; from now on none can commit it."""
        self.lost = WriteConflictError(
            f"{table} {key!r} was changed by commit {changed}, after the transaction began at "
            f"{self.read_ts}; roll it back and begin it anew",
            extra={"table": table, "key": key, "changed": changed},
        )
        return self.lost


def _rows_of(ops: Sequence[records.Op]) -> list[Changed]:
    rows = [row for op in ops for row in schema_rows(op)]
    for op in ops:
        if isinstance(op, records.KeysWritten):
            rows += [("key", key) for key in op.saves]
    return rows


def _are_light(ops: Sequence[records.Op]) -> bool:
    """Whether all rows that operations change stand in them, and others may change others."""
    return _LIGHT.issuperset(map(type, ops)) or all(
        type(op) in _LIGHT or (isinstance(op, records.KeysWritten) and not op.removals)
        for op in ops
    )
