"""Committed state with the changes of one commit over it: the judge of what may be committed.

The committer plays a commit on a draft before anything of it is logged. Whoever decides what to
commit asks the same one beforehand, piece by piece:

    draft = Draft(state)
    error = draft.attempt([records.StorageGroupSet("root.sg")])  # None: taken, and counts from now

A draft is of one moment: committed state must stand still as long as it is used.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from common.errors import TsferryError
from receiver.metadata.commit.judging.rules import Rules, check_txn
from receiver.metadata.commit.pace import weight_of
from receiver.metadata.commit.series_rules.plain_series import takes_plain_series
from receiver.metadata.commit.series_rules.schema_rules import SchemaRules
from receiver.metadata.commit.touched import Touched
from receiver.metadata.model import records
from receiver.metadata.model.errors import MemoryLimitError, RefusedCommitError
from receiver.metadata.model.paths import format_path, parse_stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from receiver.metadata.commit.pace import Pace
    from receiver.metadata.commit.series_rules.schema_draft import SchemaDraft
    from receiver.metadata.state.state import State

__all__ = ["Draft", "acceptable", "examine"]

T = TypeVar("T")


def examine(state: State, ops: Sequence[records.Op], *, pending: int = 0) -> Touched:
    """Check the operations of a commit, in their order.

    Args:
        state: committed state; `max_memory` of it is the limit for what the schema may take.
        ops: of the commit.
        pending: bytes that earlier commits of the same batch let the schema grow by.

    Returns:
        the keys that it looked at and those that it changes: a commit that looks at what an earlier
        one of the same batch changes has to wait.

    Raises:
        TsferryError: as `Draft.take`.
    """
    if not ops:
        raise RefusedCommitError("there is nothing to commit")
    if type(ops[0]) is records.SeriesCreated and state.max_memory is None:
        touched = Touched()
        if len(ops) == 1:
            # Most commits of many threads: the tables have no part in it.
            _examine_series(state, ops[0], touched)
            return touched
        if len(ops) == 2 and type(ops[1]) is records.TxnCommitted:  # the same, by a transaction
            _examine_series(state, ops[0], touched)
            check_txn(state, ops[1])
            touched.written.add(("txn", ops[1].id))
            return touched
    draft = Draft(state, pending=pending, notes=True)
    draft.take(ops, last=True)
    return draft.touched


def _examine_series(state: State, op: records.SeriesCreated, touched: Touched) -> None:
    if not takes_plain_series(state.schema, op, touched):
        SchemaRules(state.schema, touched, keeps=False).series_created(op)


class Draft:
    """See the module.

    Attributes:
        state: as committed.
    """

    __slots__ = ("_pace", "_pending", "_rules", "_settled", "state")

    def __init__(
        self, state: State, *, pending: int = 0, notes: bool = False, pace: Pace | None = None
    ) -> None:
        """Begin with what is committed.

        Args:
            state: committed.
            pending: bytes by which the schema grows before this.
            notes: whether `touched` is wanted.
            pace: lets others in between two steps; the state may be another one behind that, if
                who lets it sees that nothing changed which was looked at.
        """
        self.state = state
        self._pace = pace
        self._rules = Rules(state, notes=notes, pace=pace)
        self._pending = pending
        self._settled = 0

    @property
    def schema(self) -> SchemaDraft:
        """The schema as it is with all that was taken."""
        return self._rules.schema.draft

    @property
    def touched(self) -> Touched:
        """Keys of all that was taken, and of what was only tried: too many do no harm."""
        return self._rules.touched

    def attempt(self, ops: Sequence[records.Op]) -> TsferryError | None:
        """Take operations, all or none; returns the error that a commit of them would raise."""
        try:
            with self.all_or_nothing():
                self.take(ops)
        except TsferryError as error:
            return error
        return None

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Give back what was taken inside if an error leaves it; may be nested."""
        rules, schema = self._rules, self.schema
        nested = schema.undo is not None
        if not nested:
            schema.undo = []
        before = rules.savepoint()
        try:
            yield
        except BaseException:
            rules.roll_back(before)
            raise
        finally:
            if not nested:
                schema.undo = None
                self._settled = rules.schema.cost

    def take(self, ops: Sequence[records.Op], *, last: bool = False) -> None:
        """Take operations, in their order, behind those that were taken before.

        Args:
            ops: to be taken.
            last: nothing will follow, so that the last one need not be remembered.

        Raises:
            ConflictError: a file holds a device of another owner (`extra`: device, path), or a
                series of another type (`SchemaConflictError`).
            MemoryLimitError: the schema would take more memory than it may.
            RefusedCommitError: another rule is broken; the message names the operation or the
                object.
            IllegalPathError: a path is none.
        """
        rules = self._rules
        schema, end = rules.schema, len(ops) - 1
        for number, op in enumerate(ops):
            if self._pace is not None:
                self._pace.step(weight_of(op))
            schema.keeps = not last or number != end
            rules.play(op)
        if self.state.max_memory is not None:
            self._check_memory(self.state.max_memory, ops)

    def _check_memory(self, limit: int, ops: Sequence[records.Op]) -> None:
        used = self.state.schema.memory.used + self._pending + self._settled
        needed = self._rules.schema.cost - self._settled
        if needed > 0 and used + needed > limit:
            raise MemoryLimitError(
                f"{_grown(ops)} would take {needed} bytes more; the schema takes {used} of the "
                f"{limit} that it may (max_memory). Delete series, or raise the limit",
                extra={"limit": limit, "used": used, "needed": needed},
            )
        self._rules.touched.cost = self._rules.schema.cost


def _grown(ops: Sequence[records.Op]) -> str:
    for op in ops:
        if isinstance(op, records.SeriesCreated):
            return f"{len(op.names)} series of {op.device}"
        if isinstance(op, records.SeriesLoaded):
            return f"the series of {op.physical}"
    for op in ops:
        if isinstance(op, records.StorageGroupSet):
            return f"the storage group {op.path}"
    return "the commit"


def acceptable(
    draft: Draft, ops: Sequence[records.Op]
) -> tuple[list[records.Op], list[tuple[str, str]]]:
    """Of operations that belong together those that are taken, and (path, reason) of the others.

    A part that is refused is cut in halves until what is to blame stands alone.
    """
    good: list[records.Op] = []
    refused: list[tuple[str, str]] = []
    parts: list[Sequence[records.Op]] = [ops] if ops else []
    while parts:
        part = parts.pop()
        error = draft.attempt(part)
        if error is None:
            good += part
        elif (smaller := _halves(part)) is not None:
            parts += reversed(smaller)
        else:
            refused.append((_path(part[0]), error.message))
    return good, refused


def _halves(part: Sequence[records.Op]) -> tuple[Sequence[records.Op], ...] | None:
    if len(part) > 1:
        return part[: len(part) // 2], part[len(part) // 2 :]
    op = part[0]
    if isinstance(op, records.SeriesCreated) and len(op.names) > 1:
        middle = len(op.names) // 2
        return [_slice(op, 0, middle)], [_slice(op, middle, len(op.names))]
    return None


def _slice(op: records.SeriesCreated, begin: int, end: int) -> records.SeriesCreated:
    def cut(column: Sequence[T] | None) -> Sequence[T] | None:
        return None if column is None else column[begin:end]

    return records.SeriesCreated(
        op.device,
        op.names[begin:end],
        op.types[begin:end],
        op.encodings[begin:end],
        op.compressions[begin:end],
        op.aligned,
        cut(op.aliases),
        cut(op.tags),
        cut(op.attributes),
        cut(op.props),
    )


def _path(op: records.Op) -> str:
    match op:
        case records.SeriesCreated():
            return format_path((*parse_stored(op.device), op.names[0]))
        case records.SeriesDeleted():
            return op.pattern
        case _:
            return str(getattr(op, "path", type(op).__name__))
