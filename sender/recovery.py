"""After a crash, and after every task: folding what the receiver committed into the list.

Only the receiver's stored outcome of a task says what is loaded; sync.log says which task to ask
for. Before each task:

1. a half replaced list is finished (`Ledger.open`);
2. for each task that a sync.log names, the outcome is asked; is the receiver out of reach, or the
   task still loading, nothing is changed and the logs stay;
3. what the outcome calls loaded goes on the list, what it calls deleted or retired comes off; a
   task that was never committed changes nothing;
4. the logs are deleted;
5. links of loaded files, and of files whose source is still there, are dropped. What remains is the
   last copy of a file that was not loaded: it goes into the next plan. One that is no whole TsFile
   is dropped: nobody can load it, it is gone at the edge, and deletions would wait for it for ever.

Each step may be cut off anywhere and is then done again from the first.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common import crash
from common.digests import md5_of_fd
from common.errors import BusyError, NameRefusedError, UnsafePathError
from common.names import FilePath
from common.tsfile import read_tail
from common.wire import Result, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from common.wire import Outcome, TaskAnswer
    from sender.datadirs import DataDirs
    from sender.entry import Entry
    from sender.ledger import Ledger
    from sender.local import LocalFile
    from sender.snapshot import Snapshot
    from sender.synclogs import SyncLogs

__all__ = ["Folded", "RecoveryReport", "fold_outcomes", "recover"]

_log = logging.getLogger(__name__)
_COME = frozenset({Result.LOADED, Result.ALREADY})
_GO = frozenset({Result.DELETED, Result.RETIRED})


@dataclass(frozen=True, slots=True)
class Folded:
    """What an outcome changed on the list."""

    added: tuple[FilePath, ...] = ()
    removed: tuple[FilePath, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What a recovery found and did.

    Attributes:
        tasks: tasks that a sync.log named, and whether they were committed.
        added: paths that went on the list.
        removed: paths that came off it.
        last_copies: files that live only in the snapshot and must be sent.
        dropped: links that were dropped.
    """

    tasks: Mapping[str, bool]
    added: tuple[FilePath, ...] = ()
    removed: tuple[FilePath, ...] = ()
    last_copies: tuple[LocalFile, ...] = ()
    dropped: tuple[FilePath, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether there was nothing to recover."""
        return not self.tasks and not self.last_copies and not self.dropped


def recover(
    ledger: Ledger,
    logs: SyncLogs,
    snapshot: Snapshot,
    dirs: DataDirs,
    outcome_of: Callable[[str], TaskAnswer | None],
) -> RecoveryReport:
    """Bring list, logs and snapshot into order; see the module. Doing it twice changes nothing.

    Args:
        ledger: opened with repair.
        logs: of the same receiver.
        snapshot: of the same receiver.
        dirs: the data directories, to see which sources are still there.
        outcome_of: asks the receiver for a task: its answer, or None if it knows no such task.
            Whatever it raises (receiver out of reach) passes through, with nothing changed.

    Raises:
        BusyError: the receiver is still loading the task; ask again later.
    """
    answers = _ask(logs, outcome_of)
    added: list[FilePath] = []
    removed: list[FilePath] = []
    for answer in answers.values():
        if answer is not None:
            folded = fold_outcomes(ledger, answer.outcomes)
            added += folded.added
            removed += folded.removed
    crash.point("recovery.folded")
    logs.remove()
    crash.point("recovery.logs_removed")
    dropped, last_copies = _sort_links(ledger, snapshot, dirs)
    return RecoveryReport(
        {task: answer is not None for task, answer in answers.items()},
        tuple(added),
        tuple(removed),
        tuple(last_copies),
        tuple(dropped),
    )


def fold_outcomes(ledger: Ledger, outcomes: Iterable[Outcome]) -> Folded:
    """Fold the committed outcomes of a task into the list.

    What was sent is taken from `Ledger.sent`: a path that is not there is left for the next plan,
    which finds it loaded already. A path that is both deleted and loaded was replaced.
    """
    come: dict[FilePath, Entry] = {}
    loaded: set[FilePath] = set()
    go: set[FilePath] = set()
    for outcome in outcomes:
        try:
            path = FilePath.parse(outcome.path)
        except NameRefusedError:
            continue  # we never sent such a path
        if outcome.result in _COME:
            loaded.add(path)
            if path in ledger.pending:
                come[path] = ledger.pending[path]
        elif outcome.result in _GO:
            go.add(path)
    go -= loaded
    removed = tuple(path for path in go if path in ledger.entries)
    if come or removed:
        ledger.fold(come.values(), removed)
    return Folded(tuple(come), removed)


def _ask(
    logs: SyncLogs, outcome_of: Callable[[str], TaskAnswer | None]
) -> dict[str, TaskAnswer | None]:
    """All answers before anything is changed: an unreachable receiver leaves all as it is."""
    tasks = {state.task for state in logs.left_over().values() if state.task is not None}
    answers = {}
    for task in sorted(tasks):
        answer = outcome_of(task)
        if answer is not None and answer.state is TaskState.LOADING:
            raise BusyError(f"the receiver is still loading task {task}", retry_after=1.0)
        answers[task] = answer if answer is not None and answer.state is TaskState.DONE else None
    return answers


def _sort_links(
    ledger: Ledger, snapshot: Snapshot, dirs: DataDirs
) -> tuple[list[FilePath], list[LocalFile]]:
    drop: list[FilePath] = []
    keep: list[LocalFile] = []
    for link in snapshot.leftovers():
        if _is_loaded(ledger, dirs, link) or _has_source(dirs, link):
            drop.append(link.path)
        elif (fault := _fault(dirs, link)) is not None:
            _log.warning("%s: was deleted here and cannot be loaded: %s", link.path, fault)
            drop.append(link.path)
        else:
            keep.append(link)
    snapshot.drop(drop)
    crash.point("recovery.links_dropped")
    snapshot.prune()
    return drop, keep


def _is_loaded(ledger: Ledger, dirs: DataDirs, link: LocalFile) -> bool:
    entry = ledger.entries.get(link.path)
    if entry is None or entry.size != link.size or not entry.md5:
        return False
    if entry.identity == link.identity:
        return True
    # A copy has numbers of its own: its content decides.
    fd = dirs.trees[link.data_dir].open_read(link.rel)
    try:
        return md5_of_fd(fd) == entry.md5
    finally:
        os.close(fd)


def _fault(dirs: DataDirs, link: LocalFile) -> str | None:
    """Why a link is no TsFile that a receiver could take, None if it is one."""
    fd = dirs.trees[link.data_dir].open_read(link.rel)
    try:
        tail = read_tail(fd)
    finally:
        os.close(fd)
    return None if tail.complete else f"{tail.status}: {tail.reason}"


def _has_source(dirs: DataDirs, link: LocalFile) -> bool:
    """Whether a TsFile still stands under this path (of a flat layout: under this name)."""
    try:
        return any(tree.exists(link.path.text) or tree.exists(link.path.name) for _, tree in dirs)
    except UnsafePathError:
        return False  # better sent twice than not at all
