"""What the calls of a transaction go to: the schema, and the keys, as it sees them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from common.errors import GoneError, UsageError
from receiver.metadata.commit.group_deletion import GroupsDeleted, files_of
from receiver.metadata.commit.operations import Operations, storage_group_at
from receiver.metadata.model import records
from receiver.metadata.model.errors import (
    KeyMissingError,
    SeriesMissingError,
    StorageGroupHoldsFilesError,
    StorageGroupMissingError,
)
from receiver.metadata.model.paths import Nodes, Pattern, format_path, parse_pattern
from receiver.metadata.query import questions as ask
from receiver.txn.txn_snapshot import TxnSnapshot, is_committed_only
from receiver.txn.txn_store import MOST_OPS

if TYPE_CHECKING:
    from receiver.metadata.commit.guards import Guard
    from receiver.metadata.engine import Engine
    from receiver.metadata.model.alterations import Alteration
    from receiver.metadata.query.questions import At, Query
    from receiver.metadata.query.row_source import Answering
    from receiver.metadata.state.lock import Reading
    from receiver.metadata.state.state import State
    from receiver.txn.txn_store import TxnStore

__all__ = ["TxnDatabase", "TxnKeys"]


class TxnDatabase(Operations):
    """The schema: the same operations and questions as an engine's, over what the store has.

    What an operation returns counts what was written; the commit gives the timestamp. While nothing
    of the schema was written, questions go to the engine, as of the read time; then to a fork.
    """

    def __init__(self, store: TxnStore) -> None:
        self._store = store
        self._engine: Engine = store.operator.engine
        self.options = self._engine.options

    # -- operations --------------------------------------------------------------------------

    def commit(self, ops: Sequence[records.Op], guards: Sequence[Guard] = ()) -> int:
        """Take operations into the write set; the store guards the rows that they change itself."""
        self._store.write(ops)
        return self.newest_commit

    def delete_series(self, *patterns: str | Pattern) -> int:
        """All series that match and that the transaction sees; see `Operations.delete_series`."""
        with self._view() as (state, at):
            found: dict[Nodes, None] = {}
            for each in patterns:
                pattern = parse_pattern(each) if isinstance(each, str) else each
                found.update(dict.fromkeys(_series_meant(state, pattern, at)))
        return self.commit([records.SeriesDeleted(format_path(nodes)) for nodes in found])

    def drop_storage_groups(
        self,
        *patterns: str | Pattern,
        with_data: bool = False,
        held_from: int | None = None,
        allowed: str | None = None,
    ) -> GroupsDeleted:
        """Storage groups that hold no files; those that do are deleted by a commit of their own.

        Raises:
            StorageGroupMissingError: a pattern matches none.
            StorageGroupHoldsFilesError: they hold loaded files.
            UsageError: `with_data`.
        """
        if with_data:
            raise UsageError("files are not deleted with their storage group in a transaction")
        with self._view() as (state, at):
            there = {row.nodes: row.ttl for row in state.schema.groups.rows(at)}
        groups: dict[Nodes, int | None] = {}
        for each in patterns:
            pattern = parse_pattern(each) if isinstance(each, str) else each
            matching = {nodes: ttl for nodes, ttl in there.items() if pattern.matches(nodes)}
            if not matching:
                text = pattern.text
                raise StorageGroupMissingError(
                    f"there is no storage group {text}", extra={"path": text}
                )
            groups |= matching
        with self._engine.reading() as state:
            held, _ = files_of(state, groups)
        if held:
            path = format_path(next(iter(groups)))
            raise StorageGroupHoldsFilesError(
                f"{path}: {len(held)} loaded files are in what would be deleted",
                extra={"path": path, "files": len(held)},
            )
        self.commit([records.StorageGroupDeleted(format_path(nodes)) for nodes in groups])
        ttls = {format_path(nodes): ttl for nodes, ttl in groups.items() if ttl is not None}
        return GroupsDeleted(self.newest_commit, ttls, 0, 0)

    def alter(self, path: str | Nodes, alteration: Alteration) -> int:
        """See `Operations.alter`."""
        try:
            super().alter(path, alteration)
        except SeriesMissingError as error:
            self._see_not_deleted(error)
            raise
        return self.newest_commit

    def set_alias(self, path: str | Nodes, alias: str | None) -> int:
        """See `Operations.set_alias`."""
        try:
            return super().set_alias(path, alias)
        except SeriesMissingError as error:
            self._see_not_deleted(error)
            raise

    def checkpoint(self) -> int:
        """A checkpoint is of what is committed; a transaction takes none.

        Raises:
            UsageError: always.
        """
        raise UsageError("a snapshot is taken outside of a transaction")

    def _create(self, nodes: Nodes, op: records.SeriesCreated) -> int:
        if self._store.write_new(op):
            return self.newest_commit
        return super()._create(nodes, op)

    def _make_group(self, device: Nodes) -> list[records.Op]:
        if not self._makes_group(device) or self._store.knows_group(device):
            return []
        group = storage_group_at(device, self.options.storage_group_level)
        return [records.StorageGroupSet(format_path(group), if_missing=True)]

    def _see_not_deleted(self, error: SeriesMissingError) -> None:
        """Of a series that is not there now, the transaction may have seen one."""
        path = error.extra.get("path")
        with self._engine.reading() as state:
            changed = state.changed("series", path) if isinstance(path, str) else 0
        if changed > self._store.read_ts:
            raise self._store.conflict("series", path, changed) from error

    # -- questions ---------------------------------------------------------------------------

    def answering(self, query: Query, at: At) -> Answering:
        """What answers a question: this, or what was committed, of which nothing was written here.

        Raises:
            UsageError: it is about what the transaction has changed and only a commit shows; or
                about what has no past.
        """
        if isinstance(query, ask.ShowUpload):
            raise UsageError(
                "show upload: when files go is known as it is now, not as of when the transaction "
                "began; ask outside of it"
            )
        if is_committed_only(query, self._store.ops):
            return TxnSnapshot(self._store)
        when = at if query.at is None else query.at
        if when is not None and self._store.has_written_schema:
            snapshot = TxnSnapshot(self._store)
            if snapshot.at(when) < self._store.read_ts:
                return snapshot
        return self

    @property
    def newest_commit(self) -> int:
        """What is newest as the transaction sees it: the read time, and one for each writing.

        While the engine answers it is the read time alone: one behind it is somebody else's commit.
        """
        store = self._store
        return store.read_ts + store.statements if store.has_written_schema else store.read_ts

    @property
    def oldest_answerable(self) -> int:
        """See `Engine.oldest_answerable`."""
        return self._engine.oldest_answerable

    def at(self, when: int | datetime.datetime | None = None) -> int:
        """The time that a question is about; none later than the read time, and own writes.

        Raises:
            UsageError: it is an earlier time, and own writes stand in what answers.
        """
        self._store.use()
        if when is None:
            return self.newest_commit
        ts = self._engine.at(when)
        if ts >= self._store.read_ts:
            return self.newest_commit
        if self._store.has_written_schema:
            raise UsageError("at: what the transaction has written has no past; see `answering`")
        return ts

    def reading(self) -> Reading:
        """The state that answers: the engine's, or, once the schema was written, its own."""
        store = self._store
        return store.own_state().reading if store.has_written_schema else self._engine.reading()

    def check_answerable(self, ts: int) -> None:
        """See that a time can be asked about.

        Raises:
            GoneError: the question is of before the last writing.
            TxnEndedError: the transaction is over.
            HistoryGoneError: the time is before the kept history.
        """
        self._store.use()
        if self._store.has_written_schema:
            if ts != self.newest_commit:
                raise GoneError("the transaction has written since the question was put; ask anew")
            return
        self._engine.check_answerable(min(ts, self._store.read_ts))

    def tags_of(self, offset: int) -> tuple[dict[str, str], dict[str, str]]:
        """See `Engine.tags_of`."""
        store = self._store
        return (store.own_state() if store.has_written_schema else self._engine).tags_of(offset)

    def log_since(self, ts: int) -> Iterator[records.Commit]:
        """See `Engine.log_since`."""
        return self._engine.log_since(ts)

    def _view(self) -> _View:
        return _View(self, None if self._store.has_written_schema else self._store.read_ts)


class _View:
    """`with` gives the state that answers, and as of when it is to be asked."""

    def __init__(self, database: TxnDatabase, at: int | None) -> None:
        self._reading = database.reading()
        self._at = at

    def __enter__(self) -> tuple[State, int | None]:
        return self._reading.__enter__(), self._at

    def __exit__(self, *_: object) -> None:
        self._reading.__exit__()


def _series_meant(state: State, pattern: Pattern, at: int | None) -> list[Nodes]:
    """Paths of the series that are to be deleted; a path may end in an alias."""
    series, tree = state.schema.series, state.schema.tree
    if pattern.is_path:
        row = series.find(pattern.prefix, at)
        rows = [] if row < 0 else [row]
    else:
        rows = series.match(pattern, at, limit=MOST_OPS + 1)
    if not rows:
        raise SeriesMissingError(f"no series matches {pattern.text}", extra={"path": pattern.text})
    return [tree.nodes(row) for row in rows]


class TxnKeys:
    """The keys of the key-value store, as the transaction sees them."""

    def __init__(self, store: TxnStore) -> None:
        self._store = store
        self._engine: Engine = store.operator.engine
        self._own: dict[str, str | None] = {}
        self._removed: list[str] = []

    def load(self, key: str) -> str:
        """The value of a key.

        Raises:
            KeyMissingError: there is none.
            HistoryGoneError: the read time is before the kept history.
        """
        self._store.use()
        value = self._own.get(key)
        if key not in self._own and not key.startswith(tuple(self._removed)):
            with self._engine.reading() as state:
                self._engine.check_answerable(self._store.read_ts)
                value = state.keys.load(key, self._store.read_ts)
        if value is None:
            raise KeyMissingError(f"there is no key {key!r}")
        return value

    def load_with_prefix(self, prefix: str) -> dict[str, str]:
        """The keys that begin with a prefix ("" for all), in order, with their values."""
        self._store.use()
        with self._engine.reading() as state:
            self._engine.check_answerable(self._store.read_ts)
            found = dict(
                zip(*state.keys.load_with_prefix(prefix, self._store.read_ts), strict=True)
            )
        gone = tuple(self._removed)
        merged = {key: value for key, value in found.items() if not key.startswith(gone)}
        for key, value in self._own.items():
            if key.startswith(prefix):
                if value is None:
                    merged.pop(key, None)
                else:
                    merged[key] = value
        return dict(sorted(merged.items()))

    def save(self, key: str, value: str) -> None:
        """Set a key."""
        self.multi_save_and_remove_with_prefix({key: value}, ())

    def multi_save_and_remove_with_prefix(
        self, saves: Mapping[str, str], removals: Sequence[str]
    ) -> None:
        """Remove all keys with one of the prefixes, then set keys.

        Raises:
            KeyRefusedError: a key is empty or too long, or there is nothing to write.
            WriteConflictError: one of the keys was changed since the transaction began.
        """
        self._store.write([records.KeysWritten(tuple(removals), dict(saves))])
        for prefix in removals:
            self._removed.append(prefix)
            for key in [each for each in self._own if each.startswith(prefix)]:
                self._own[key] = None
        self._own.update(saves)
