"""What commits do to the first tier: rows of its table, from the log and the rows of the engine.

Whoever follows needs to know little: which files are hidden for now, which have come back once,
and what is in each directory. All of that stands in the tables, and is taken from them at a start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from common.errors import Transient
from receiver.metadata.model import records
from receiver.metadata.query.file_tree import DirectoryName, directories_of, moves_of
from receiver.storage.stores.object_keys import stored_key
from receiver.storage.tree.tree_tables import NODES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from receiver.metadata.model.records import Commit, Op
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.storage.tree.tree_tables import ArrowTable

__all__ = [
    "EngineFile",
    "ForgottenError",
    "NodeRow",
    "TreeFollower",
    "file_row",
    "known_files",
    "newest_of",
]

NodeRow = tuple[Any, ...]
"""Members as the columns of `NODES`."""

_ENDED_BY: Final[dict[type, str]] = {
    records.FileDeleted: "deleted",
    records.FileQuarantined: "quarantined",
    records.FileSuperseded: "superseded",
}

_STANDING: Final = (
    "kind",
    "path",
    "parent",
    "create_at",
    "delete_at",
    "files",
    "size",
    "ended_by",
    "loaded_at",
)


class ForgottenError(Transient):
    """The engine does not know a file any more that the log tells of: it is too late to follow."""

    slug = "forgotten-file"


class EngineFile:
    """What the engine knows of a file.

    Attributes:
        row: of it.
        key: of its object; None where there is none.
        uploaded: the commit that told of its object first; 0 for none.
    """

    __slots__ = ("key", "row", "uploaded")

    def __init__(self, state: State, row: FileRow) -> None:
        there = state.uploaded_table.rows.get(row.physical)
        self.row = row
        self.key = None if there is None else stored_key(state.uuid, there)
        self.uploaded = 0 if there is None else there.created


def known_files(state: State, paths: Iterable[str]) -> dict[str, EngineFile]:
    """What the engine knows of some files; of those that it knows."""
    rows = ((path, state.files.get(path)) for path in paths)
    return {path: EngineFile(state, row) for path, row in rows if row is not None}


def file_row(
    known: EngineFile, create_at: int, changed_at: int, *, delete_at: int = 0, ended_by: str = ""
) -> NodeRow:
    """The row of a file's entry."""
    row = known.row
    _, group, partition = directories_of(row.physical)
    return (
        "file",
        row.physical,
        partition.path,
        create_at,
        delete_at,
        changed_at,
        1,
        row.size,
        group.path,
        int(partition.path.rpartition("/")[2]),
        row.sender,
        row.path,
        row.md5,
        row.first,
        row.last,
        len(row.devices),
        row.series,
        row.points,
        row.created,
        known.key,
        ended_by or None,
    )


class _Directory:
    """What is in a directory.

    Attributes:
        create_at: since when it is there.
        files: below it.
        size: of those, bytes.
    """

    __slots__ = ("create_at", "files", "size")

    def __init__(self, create_at: int, files: int = 0, size: int = 0) -> None:
        self.create_at = create_at
        self.files = files
        self.size = size

    def row(self, name: DirectoryName, changed_at: int, *, delete_at: int = 0) -> NodeRow:
        group = name.path.split("/", 1)[0]
        is_partition = name.kind == "partition"
        return (
            name.kind,
            name.path,
            name.parent,
            self.create_at,
            delete_at,
            changed_at,
            self.files,
            self.size,
            None if name.kind == "database" else group,
            int(name.path.rpartition("/")[2]) if is_partition else None,
            *(None,) * (len(NODES.names) - 10),
        )


class TreeFollower:
    """Follows the log, and says how entries change."""

    def __init__(self) -> None:
        """Begin with nothing: no files, no directories."""
        self._hidden: set[str] = set()
        self._left: dict[str, tuple[int, int]] = {}
        """Of those of them that have an entry, its begin and end."""
        self._again: dict[str, int] = {}
        """Files that have come back, and when."""
        self._directories: dict[DirectoryName, _Directory] = {}
        self._touched: dict[DirectoryName, int] = {}
        """Of directories that are there, the commits since which they have no row."""

    # -- where to begin ----------------------------------------------------------------------

    @classmethod
    def of_files(cls, hidden: Iterable[str]) -> TreeFollower:
        """Begin with a state, of whose visible files `add` is told.

        Args:
            hidden: files that are not seen.
        """
        made = cls()
        made._hidden = set(hidden)
        return made

    def add(self, known: EngineFile, count: int = 1) -> None:
        """A file that is seen where it begins; with -1 one that is not, after all."""
        for name in directories_of(known.row.physical):
            there = self._directories.get(name)
            if there is None:
                there = self._directories[name] = _Directory(known.row.created)
            there.create_at = min(there.create_at, known.row.created)
            there.files += count
            there.size += count * known.row.size
            if not there.files:
                del self._directories[name]

    def leave(self, known: EngineFile) -> NodeRow:
        """The row of a file that was loaded and is out of sight where it begins."""
        row = known.row
        ended = row.superseded or row.changed
        self._left[row.physical] = (row.created, ended)
        word = "superseded" if row.superseded else "quarantined"
        return file_row(known, row.created, ended, delete_at=ended, ended_by=word)

    def directory_rows(self, ts: int) -> list[NodeRow]:
        """The rows of all directories as of a commit."""
        return [each.row(name, ts) for name, each in self._directories.items()]

    @classmethod
    def of_tables(cls, table: ArrowTable) -> TreeFollower:
        """Where the first tier ends.

        Args:
            table: of each entry one row; those of files that are seen since they were loaded may
                be left out.
        """
        made = cls()
        last: dict[str, tuple[int, int, str | None, int]] = {}
        columns = [table.column(each).to_pylist() for each in _STANDING]
        for row in zip(*columns, strict=True):
            kind, path, parent, create_at, delete_at, files, size, ended_by, loaded_at = row
            if kind != "file":
                if not delete_at:
                    directory = _Directory(create_at, files, size)
                    made._directories[DirectoryName(kind, path, parent)] = directory
            elif path not in last or last[path][0] < create_at:
                last[path] = (create_at, delete_at, ended_by, loaded_at)
        for path, (create_at, delete_at, ended_by, loaded_at) in last.items():
            if delete_at and ended_by != "deleted":
                made._hidden.add(path)
                made._left[path] = (create_at, delete_at)
            elif not delete_at and create_at != loaded_at:
                made._again[path] = create_at
        return made

    # -- commits -----------------------------------------------------------------------------

    @staticmethod
    def asks_for(commit: Commit) -> set[str]:
        """Files that `follow` has to know of."""
        return {op.physical for op in commit.ops if isinstance(op, _TOUCHING)}

    def follow(
        self, commit: Commit, known: Callable[[str], EngineFile | None]
    ) -> tuple[list[NodeRow], list[EngineFile]]:
        """The rows that a commit brings; those of directories that stay come by `touched_rows`.

        Args:
            commit: the next one of the log.
            known: what the engine knows of a file.

        Returns:
            rows; and files whose objects are in the store since this commit.

        Raises:
            ForgottenError: the engine does not know a file.
        """

        def find(physical: str) -> EngineFile:
            found = known(physical)
            if found is None:
                raise ForgottenError(physical)
            return found

        rows: list[NodeRow] = []
        changes: dict[DirectoryName, tuple[int, int]] = {}
        moves = moves_of(commit, self._hidden)
        for physical, move in moves.items():
            each, sign = find(physical), 1 if move.is_seen else -1
            turned = self._come if move.is_seen else self._go
            rows.append(turned(each, move.op, commit.ts))
            for name in directories_of(physical):
                count, size = changes.get(name, (0, 0))
                changes[name] = count + sign, size + sign * each.row.size
        for name, change in changes.items():
            rows += self._turn(name, *change, commit.ts)
        uploaded = []
        for op in commit.ops:
            if isinstance(op, records.FileUploaded) and op.physical not in self._hidden:
                each = find(op.physical)
                rows.append(file_row(each, self._begin_of(each), commit.ts))
                if each.uploaded == commit.ts:  # the first time; its bytes do not change
                    uploaded.append(each)
            elif isinstance(op, records.FileDeleted) and op.physical not in moves:
                rows += self._forget(op.physical, find, commit.ts)
        return rows, uploaded

    def _begin_of(self, each: EngineFile) -> int:
        return self._again.get(each.row.physical, each.row.created)

    def _come(self, each: EngineFile, op: Op, ts: int) -> NodeRow:
        self._left.pop(each.row.physical, None)
        if not isinstance(op, records.FileLoaded):
            self._again[each.row.physical] = ts
        return file_row(each, ts, ts)

    def _go(self, each: EngineFile, op: Op, ts: int) -> NodeRow:
        create_at = self._begin_of(each)
        self._again.pop(each.row.physical, None)
        if not isinstance(op, records.FileDeleted):
            self._left[each.row.physical] = (create_at, ts)
        return file_row(each, create_at, ts, delete_at=ts, ended_by=_ENDED_BY[type(op)])

    def _forget(
        self, physical: str, find: Callable[[str], EngineFile], ts: int
    ) -> Iterator[NodeRow]:
        """A file that was out of sight before: its entry need not be remembered any more."""
        ended = self._left.pop(physical, None)
        if ended is not None:
            create_at, delete_at = ended
            yield file_row(find(physical), create_at, ts, delete_at=delete_at, ended_by="deleted")

    def touched_rows(self) -> list[NodeRow]:
        """The rows of directories that have changed since this was called last, and are there."""
        touched, self._touched = self._touched, {}
        return [self._directories[name].row(name, ts) for name, ts in touched.items()]

    def _turn(self, name: DirectoryName, count: int, size: int, ts: int) -> Iterator[NodeRow]:
        there = self._directories.get(name)
        if there is None:
            there = self._directories[name] = _Directory(ts)
        there.files += count
        there.size += size
        if there.files > 0:
            self._touched[name] = ts
        else:
            del self._directories[name]
            self._touched.pop(name, None)
            yield there.row(name, ts, delete_at=ts)


_TOUCHING: Final = (
    records.FileLoaded
    | records.FileRestored
    | records.FileRevived
    | records.FileUndeleted
    | records.FileDeleted
    | records.FileQuarantined
    | records.FileSuperseded
    | records.FileUploaded
)


def newest_of(rows: Iterable[NodeRow]) -> list[NodeRow]:
    """Of rows in the order in which they came, what counts of each entry."""
    found: dict[tuple[Any, Any, Any], NodeRow] = {}
    for row in rows:
        key = row[0], row[1], row[3]
        there = found.get(key)
        if there is None or row[4] >= there[4]:
            found[key] = row
    return list(found.values())
