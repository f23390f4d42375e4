"""What came before: whether content is loaded already, under whatever name of its sender."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.names import FilePath
from receiver.load.deciding.known_files.known_content import known_content
from receiver.load.deciding.known_files.origins import has_ended, origin_of
from receiver.load.deciding.told_deletions.outlived_deletions import OutlivedDeletions
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.ranks import name_rank

if TYPE_CHECKING:
    from collections.abc import Iterable

    from receiver.load.deciding.known_files.candidates import Candidate
    from receiver.load.deciding.task_decision import TaskDecision
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["LoadedBefore"]


class LoadedBefore:
    """Files of a task whose content its sender has here."""

    def __init__(self, task: TaskDecision) -> None:
        self._task = task
        self._state = task.state
        self._record = task.record
        self._change = task.change
        self._paths = task.paths
        self._manifest = task.manifest
        self._planned = task.planned
        self._rows_guarded: set[str] = set()
        told = task.given.deletions
        self._deleted_beside = self._find_deleted({part.path for part in told})
        self._outlived = OutlivedDeletions(task.state, task.record.sender, told)

    def take(self, path: FilePath, held: FileRow | None, candidate: Candidate | None) -> bool:
        """Whether the content is loaded; without the bytes, as far as the manifest tells.

        It may be under another name, or retired: it is its sender's under this name from now on.
        """
        last = self._manifest[path.text].last_look
        if held is not None and self._paths.is_renewed(held):  # it came for another path of it
            is_same = self._is_same(path, held, candidate)
            if is_same and last:
                self._task.emit(self._paths.free(path.text, last))
            return is_same
        row = self._known(path, held, candidate)
        if row is None:
            return False
        if row.physical not in self._rows_guarded:
            self._rows_guarded.add(row.physical)
            self._change.guards.append(Guard("file", row.physical, row.changed))
            if not row.held:  # what is another's by now does not come back
                self._task.guard_owners(row.devices)
        origin = origin_of(self._manifest[path.text].origin)
        if has_ended(origin):
            if self._paths.held(path.text) == row:
                self._task.emit(self._paths.free(path.text))
            goes_on = path.text not in row.paths or self._paths.has_path(row)
        elif last:
            self._note_link(path, row, last)
            goes_on = True
        else:
            if self._paths.held(path.text) != row:
                self._task.emit([*self._paths.free(path.text), *self._paths.give(row, path.text)])
            self._note_resource(path, row, candidate)
            goes_on = False
        if origin is not None and not goes_on and origin != row.origin:
            self._task.emit([records.OriginNoted(row.physical, origin)])
        return True

    def _note_resource(self, path: FilePath, row: FileRow, candidate: Candidate | None) -> None:
        """See to the resource of a content that is here, where it came once more."""
        came = candidate.resource if candidate else self._task.given.resources.get(path.text)
        if came is not None and row.resource != (
            resource := records.ResourceMeta(came.size, came.md5)
        ):
            self._task.emit([records.ResourceNoted(row.physical, resource)])

    def _note_link(self, path: FilePath, row: FileRow, last: int) -> None:
        """See to a name that is gone, of a content that is here, and that came from a link.

        The end of a name that is listed waits like any other. One that is not is no name of it; but
        if it has ended, the link tells that it was there again, until the look that had it last.
        """
        is_free = self._paths.held(path.text) is None and not self._paths.has_path(row)
        if is_free and not self._task.mirrors and name_rank(path) == name_rank(row.parsed):
            self._task.emit(self._paths.give(row, path.text))
            self._task.emit(self._paths.free(path.text, last))

    def _known(
        self, path: FilePath, held: FileRow | None, candidate: Candidate | None
    ) -> FileRow | None:
        def is_same(row: FileRow) -> bool:
            covered = self._task.scope.first_outside(row.devices) is None
            return covered and self._is_same(path, row, candidate)

        if held is not None and held.visible and not self._task.replaces(path):
            return held if is_same(held) and self._task.given.stands(held) else None
        planned = self._planned.get(path.text)
        tail = candidate.staged.tail if candidate else planned.tail if planned else None
        if tail is None:
            return held if held is not None and held.visible and is_same(held) else None
        sender = self._record.sender
        told = self._manifest[path.text].origin
        origin = "" if told is None else told.sender
        return known_content(
            self._state,
            sender,
            path.text,
            tail,
            is_same,
            self._task.given.stands,
            origin,
            lambda row: self._is_deleted_from(row, path.text),
        )

    def _find_deleted(self, paths: Iterable[str]) -> dict[str, set[str]]:
        """Files of which deletions are told, with the paths that they are told beside.

        Args:
            paths: of all deletions of the task; a file may be known by another one as yet.
        """
        found: dict[str, set[str]] = {}
        for path in paths:
            row = self._row_of(path)
            known = [row] if row is not None else self._rows_like(path)
            for each in known:
                found.setdefault(each.physical, set()).add(path)
        return found

    def _rows_like(self, path: str) -> list[FileRow]:
        """The files of the sender that have the content of one that the task tells."""
        candidate, planned = self._task.candidates.get(path), self._planned.get(path)
        tail = candidate.staged.tail if candidate else planned.tail if planned else None
        if tail is None or path not in self._manifest:
            return []
        return [
            row
            for row in self._state.file_table.of_tail(tail)
            if row.sender == self._record.sender
            and self._is_same(FilePath.parse(path), row, candidate)
        ]

    def _is_deleted_from(self, row: FileRow, path: str) -> bool:
        """Whether something is told as deleted of a file that is not what it has under a path.

        It is, if it is told beside that path alone, and the file has no other one behind the task.
        """
        beside = self._deleted_beside.get(row.physical)
        if beside is None:
            return path not in row.paths and self._outlived.by(path, row)
        return beside != {path} or (row.held and not {*row.paths} <= self._task.deleted | {path})

    def _row_of(self, path: str) -> FileRow | None:
        """The file that is, or was forwarded, under a path, as it is committed."""
        table, sender = self._state.file_table, self._record.sender
        return table.held(sender, path) or table.forwarded(sender, path)

    def _is_same(self, path: FilePath, row: FileRow, candidate: Candidate | None) -> bool:
        found = self._manifest[path.text] if candidate is None else candidate.staged
        return (row.size, row.md5) == (found.size, found.md5)
