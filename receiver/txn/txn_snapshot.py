"""What a transaction shows of the subjects that its statements never write: the snapshot alone.

Files, tables, nodes and tasks are changed by loads and operators. A transaction sees them as they
were when it began, whatever it has written of the schema; so they are answered by the engine, as of
then. Where its operations do change them (records of a program's own, a storage group that takes
its table along), what they come to is worked out by the commit, and is refused by name before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.errors import UsageError
from receiver.metadata.model import records
from receiver.metadata.query import questions as ask
from receiver.txn.own_state import SCHEMA_OPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from receiver.metadata.engine import Engine
    from receiver.metadata.query.questions import At, Query
    from receiver.metadata.state.lock import Reading
    from receiver.txn.txn_store import TxnStore

__all__ = ["TxnSnapshot", "is_committed_only"]

_NO_FILES: Final = frozenset(
    (*SCHEMA_OPS, records.OwnerSet, records.UploadSet, records.KeysWritten)
)
"""What changes no file, node or task: all that statements write in a transaction."""
_NO_TABLES: Final = _NO_FILES - {records.StorageGroupDeleted, records.TtlSet}
"""What changes no table either: a group takes its table along, and has its TTL."""
_COMMITTED_ONLY: Final[dict[type, tuple[str, frozenset[type]]]] = {
    ask.ShowFiles: ("show files", _NO_FILES),
    ask.ShowPartitions: ("show partitions", _NO_FILES),
    ask.ShowStorageNodes: ("show nodes", _NO_FILES),
    ask.ShowCacheSlots: ("show cache slots", _NO_FILES),
    ask.ShowTasks: ("show tasks", _NO_FILES),
    ask.ShowTables: ("show tables", _NO_TABLES),
    ask.ShowTablets: ("show tablets", _NO_TABLES),
}
"""Questions about what is committed, their words, and what may be written beside them."""


def is_committed_only(query: Query, written: Sequence[records.Op]) -> bool:
    """Whether a question is answered by what was committed, whatever a transaction has written.

    Raises:
        UsageError: it would be, and what was written changes it.
    """
    words, harmless = _COMMITTED_ONLY.get(type(query), ("", frozenset()))
    if not words:
        return False
    concerning = sorted({type(op).__name__ for op in written if type(op) not in harmless})
    if concerning:
        raise UsageError(
            f"{words}: the transaction has changed what it shows ({', '.join(concerning)}), and "
            "what that comes to is known behind the commit alone; ask then, or outside of it"
        )
    return True


class TxnSnapshot:
    """What was committed when the transaction began, and before; own writes are not in it."""

    def __init__(self, store: TxnStore) -> None:
        self._store = store
        self._engine: Engine = store.operator.engine
        self.options = self._engine.options

    def at(self, when: At = None) -> int:
        """The time that a question is about, none later than the read time."""
        self._store.use()
        read_ts = self._store.read_ts
        return read_ts if when is None else min(self._engine.at(when), read_ts)

    def reading(self) -> Reading:
        """See `Engine.reading`."""
        return self._engine.reading()

    def check_answerable(self, ts: int) -> None:
        """See that a time can be asked about.

        Raises:
            TxnEndedError: the transaction is over.
            HistoryGoneError: the time is before the kept history.
        """
        self._store.use()
        self._engine.check_answerable(ts)

    def tags_of(self, offset: int) -> tuple[dict[str, str], dict[str, str]]:
        """See `Engine.tags_of`."""
        return self._engine.tags_of(offset)

    @property
    def oldest_answerable(self) -> int:
        """See `Engine.oldest_answerable`."""
        return self._engine.oldest_answerable

    def log_since(self, ts: int) -> Iterator[records.Commit]:
        """See `Engine.log_since`."""
        return self._engine.log_since(ts)
