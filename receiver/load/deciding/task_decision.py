"""What the parts of one decision about a task share: what it is made from, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from common.wire import Propagate, Result
from receiver.load.deciding.known_files.candidates import Candidate, Change
from receiver.load.deciding.known_files.taken_paths import TakenPaths
from receiver.load.deciding.told_deletions.delete_guard import DeleteGuard
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.records import FileOutcome
from receiver.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from common.names import FilePath
    from common.wire import DeletionsPart
    from receiver.config import DeletesConfig
    from receiver.load.deciding.expiry import Expiry
    from receiver.load.folder.current_task import Planned, TaskRecord
    from receiver.load.folder.staged import Verified
    from receiver.load.schema.registering import Registering
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["PlaceOfEnds", "TaskDecision", "TaskInput", "same_content", "waits_for"]

PlaceOfEnds: TypeAlias = tuple[str, str, int]
"""Storage group, virtual group and partition of a file (`FilePath.group`)."""


@dataclass(frozen=True)
class TaskInput:
    """What a task's change is decided from.

    Attributes:
        state: committed.
        record: the task, with its manifest.
        planned: what was planned in it, by path.
        candidates: the verified files of its manifest, by path.
        failed: the outcomes of those of its manifest that cannot be loaded.
        deletions: what it tells of deletion files, in order.
        resources: those that came without their TsFiles, by the paths of these.
        stands: whether the bytes of a loaded file are on the disk.
        expiry: which files are past their TTL, None while nothing expires.
        data_dir: the data directory that new files go to.
        limits: how much a sender may delete.
    """

    state: State
    record: TaskRecord
    planned: Mapping[str, Planned]
    candidates: Mapping[str, Candidate]
    failed: Mapping[str, FileOutcome]
    deletions: Sequence[DeletionsPart]
    resources: Mapping[str, Verified]
    stands: Callable[[FileRow], bool]
    expiry: Expiry | None
    data_dir: str
    limits: DeletesConfig


class TaskDecision:
    """One pass over a task: who has which path by now, and the change as far as it is made.

    Attributes:
        change: what comes of it.
        paths: of the sender, as the change has them so far.
        guard: over what the sender deletes.
        anew: whether the list of a restored sender begins anew.
        mirrors: whether the sender's word may delete in this task.
        deleted: the paths that it tells as gone.
        known_holds: by partition, what did not come to be in an earlier pass, so that all that goes
            together with it waits.
    """

    def __init__(
        self,
        given: TaskInput,
        registering: Registering,
        known_holds: Mapping[PlaceOfEnds, FileOutcome],
    ) -> None:
        state, record = given.state, given.record
        self.given = given
        self.state = state
        self.record = record
        self.planned = given.planned
        self.candidates = given.candidates
        self.registering = registering
        self.known_holds = known_holds
        self.scope = Scope(record.scope)
        self.manifest = {entry.path: entry for entry in record.manifest or ()}
        self.deleted = set(record.deleted)
        self.change = Change()
        self.anew = record.anew and state.senders[record.sender].restored > 0
        looks = dict.fromkeys(record.deleted, record.look - 1) if self.anew else record.looks
        copies = [each for path, each in given.candidates.items() if self.manifest[path].last_look]
        self.paths = TakenPaths(state, record.sender, looks, record.look, copies)
        token = None if record.token is None else state.tokens.get(record.token)
        self.guard = DeleteGuard(
            state,
            record.sender,
            record.look,
            given.limits,
            may_delete=token is None or token.allow_deletes,
            scope=self.scope,
        )
        self.mandate = record.centre
        self._owners_guarded: set[str] = set()
        self._drops: dict[str, int] = {}
        self.change.guards.append(Guard("task", (record.sender, record.task), 0))
        self.mirrors = self._take_mode() and not self.anew

    def _take_mode(self) -> bool:
        """Commit what the sender's word may take away; whether it may delete in this task.

        In the round that changes to a mirror, what is gone is only retired.
        """
        # An upload without a task, and what the centre loads itself, say nothing of what is gone.
        if self.record.single or self.record.centre is not None or self.record.adopted:
            return False
        row = self.state.senders[self.record.sender]
        wanted, look = self.record.propagate, self.record.look
        if row.propagate is not wanted:
            is_new = row.propagate is None and row.last_task is None
            self.change.ops.append(records.SenderMode(row.uuid, wanted, 0 if is_new else look))
            return wanted is Propagate.ALL and is_new
        return wanted is Propagate.ALL and (look == 0 or row.mode_look != look)

    def mirrors_from(self, last: int) -> bool:
        """Whether the end of what a look was the last to have is a delete.

        What was gone before its sender became a mirror is retired, in whatever round it is told.
        """
        since = self.state.senders[self.record.sender].mode_look
        return self.mirrors and not 0 < last < since

    def guard_owners(self, devices: Iterable[str]) -> None:
        """Have the commit hold only if some devices are still whose they are."""
        for name in devices:
            if name not in self._owners_guarded:
                self._owners_guarded.add(name)
                seen = self.state.changed("owner", name)
                self.change.guards.append(Guard("owner", name, seen))

    def last_drop(self, table: str) -> int:
        """The newest commit that dropped a table of a name; that of the change bears no newer."""
        if table not in self._drops:
            seen = self._drops[table] = self.state.changed("table_drop", table)
            self.change.guards.append(Guard("table_drop", table, seen))
        return self._drops[table]

    def held(self, path: FilePath) -> FileRow | None:
        """What the sender has under a path by now; the commit holds only if nothing else came."""
        row = self.state.file_table.held(self.record.sender, path.text)
        seen = 0 if row is None else row.changed
        self.change.guards.append(Guard("path", (self.record.sender, path.text), seen))
        return self.paths.held(path.text)

    def emit(self, ops: list[records.Op]) -> None:
        """Add to the change what registering must know of."""
        self.registering.play(ops)
        self.change.ops += ops

    def replaces(self, path: FilePath) -> bool:
        """Whether what is under a path goes for what comes."""
        planned = self.planned.get(path.text)
        return path.text in self.deleted or (planned is not None and planned.replaces)

    def goes_with_ends(self, path: FilePath, held: FileRow | None) -> bool:
        """Products of compactions, and what takes the place of other content."""
        return path.is_product or (held is not None and held.visible)


def same_content(row: FileRow, candidate: Candidate) -> bool:
    """Whether a file has the bytes of one that came."""
    return (row.size, row.md5) == (candidate.staged.size, candidate.staged.md5)


def waits_for(path: str, hold: FileOutcome) -> FileOutcome:
    """The outcome of what goes together with something that did not come to be."""
    why = f": {hold.reason}" if hold.reason else ""
    reason = f"waits for {hold.path}, of the same partition, which is {hold.result}{why}"
    return FileOutcome(path, Result.HELD, reason=reason)
