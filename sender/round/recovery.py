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
   last copy of a file that was not loaded, or that the receiver may have lost since: it goes into
   the next plan. One that is no whole TsFile is dropped: nobody can load it, it is gone at the
   edge, and deletions would wait for it for ever.

Each step may be cut off anywhere and is then done again from the first.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from common import crash
from common.digests import md5_of_fd
from common.errors import BusyError, NameRefusedError, UnsafePathError
from common.names import FilePath
from common.wire import History, Result, TaskState
from sender.select.entry import EntryState
from sender.select.path_table import with_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from common.wire import CheckAnswer, Outcome, TaskAnswer
    from sender.kept.loaded_list.ledger import Ledger
    from sender.kept.loaded_list.snapshot import Snapshot
    from sender.kept.loaded_list.sync_logs import SyncLogs
    from sender.select.data_dirs import DataDirs
    from sender.select.entry import Entry
    from sender.select.found import LocalFile

__all__ = ["LeftBehind", "RecoveryReport", "Unloadable", "lacked_by", "look_over", "recover"]

T = TypeVar("T")

_log = logging.getLogger(__name__)
_COME = frozenset({Result.LOADED, Result.ALREADY})
_GO = frozenset({Result.DELETED, Result.RETIRED})


class Unloadable(msgspec.Struct, frozen=True):
    """A link whose file is here no more and that is no TsFile which a receiver could take."""

    link: LocalFile
    fault: str


class LeftBehind(msgspec.Struct, frozen=True):
    """What the last tasks have left here, and what is to be done about it. Nothing is done yet.

    Attributes:
        tasks: tasks that a sync.log names, and whether they were committed.
        come: what goes on the list.
        removed: paths that come off it.
        entries: the list after that.
        drop: links to be dropped.
        last_copies: files that live only in the snapshot and must be sent.
        unloadable: links to be dropped although nothing else has them.
    """

    tasks: Mapping[str, bool]
    come: tuple[Entry, ...]
    removed: tuple[FilePath, ...]
    entries: Mapping[FilePath, Entry]
    drop: tuple[LocalFile, ...]
    last_copies: tuple[LocalFile, ...]
    unloadable: tuple[Unloadable, ...]


class RecoveryReport(msgspec.Struct, frozen=True):
    """What a recovery did.

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


def recover(
    ledger: Ledger,
    logs: SyncLogs,
    snapshot: Snapshot,
    dirs: DataDirs,
    outcome_of: Callable[[str], TaskAnswer | None],
    may_lack: Callable[[Entry], bool] = lambda entry: False,
) -> RecoveryReport:
    """Bring list, logs and snapshot into order; see the module. Doing it twice changes nothing.

    Args:
        ledger: opened with repair.
        logs: of the same receiver.
        snapshot: of the same receiver.
        dirs: the data directories, to see which sources are still there.
        outcome_of: asks the receiver for a task: its answer, or None if it knows no such task.
            Whatever it raises (receiver out of reach) passes through, with nothing changed.
        may_lack: whether the receiver may not have any more what is listed: its last copy stays.

    Raises:
        BusyError: the receiver is still loading the task; ask again later.
    """
    found = look_over(ledger, logs, snapshot, dirs, outcome_of, may_lack)
    if found.come or found.removed:
        ledger.fold(found.come, found.removed)
    crash.point("recovery.folded")
    logs.remove()
    crash.point("recovery.logs_removed")
    for each in found.unloadable:
        _log.warning("%s: was deleted here and cannot be loaded: %s", each.link.path, each.fault)
    dropped = [*found.drop, *(bad.link for bad in found.unloadable)]
    snapshot.drop(dropped)
    crash.point("recovery.links_dropped")
    snapshot.sweep()
    return RecoveryReport(
        found.tasks,
        tuple(each.path for each in found.come),
        found.removed,
        found.last_copies,
        tuple(each.path for each in dropped),
    )


def look_over(
    ledger: Ledger,
    logs: SyncLogs,
    snapshot: Snapshot,
    dirs: DataDirs,
    outcome_of: Callable[[str], TaskAnswer | None],
    may_lack: Callable[[Entry], bool] = lambda entry: False,
) -> LeftBehind:
    """What `recover` would do, with nothing changed; the arguments and errors are the same."""
    answers = _ask(logs, outcome_of)
    entries: Mapping[FilePath, Entry] = ledger.entries
    come: dict[FilePath, Entry] = {}
    removed: dict[FilePath, None] = {}
    for answer in answers.values():
        if answer is not None:
            added, gone = _folded(entries, ledger.pending, answer.outcomes)
            for path in gone:
                come.pop(path, None)
                removed[path] = None
            for path, entry in added.items():
                come[path] = replace(entry, state=EntryState.LOADED)
                removed.pop(path, None)
            entries = with_changes(entries, (come[path] for path in added), gone)
    drop, keep, unloadable = [], [], []
    for link in snapshot.leftovers():
        if _has_source(dirs, link) or _is_loaded(entries, dirs, link, may_lack):
            drop.append(link)
        elif (fault := _fault(dirs, link)) is not None:
            unloadable.append(Unloadable(link, fault))
        else:
            keep.append(link)
    return LeftBehind(
        {task: answer is not None for task, answer in answers.items()},
        tuple(come.values()),
        tuple(removed),
        entries,
        tuple(drop),
        tuple(keep),
        tuple(unloadable),
    )


def _folded(
    entries: Mapping[FilePath, Entry],
    pending: Mapping[FilePath, Entry],
    outcomes: Iterable[Outcome],
) -> tuple[dict[FilePath, Entry], list[FilePath]]:
    """What the committed outcomes of a task put on the list, and what they take off it.

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
            if path in pending:
                come[path] = pending[path]
        elif outcome.result in _GO:
            go.add(path)
    return come, [path for path in go - loaded if path in entries]


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


def lacked_by(check: CheckAnswer) -> Callable[[Entry], bool]:
    """Whether a receiver may not have any more what is listed, as it said: see `recover`."""
    wanted = {(each.path, each.md5) for each in check.wanted}
    continues = check.history is History.CONTINUES
    return lambda entry: not continues or (entry.path.text, entry.md5) in wanted


def _is_loaded(
    entries: Mapping[FilePath, Entry],
    dirs: DataDirs,
    link: LocalFile,
    may_lack: Callable[[Entry], bool],
) -> bool:
    entry = entries.get(link.path)
    if entry is None or entry.size != link.size or not entry.md5 or may_lack(entry):
        return False
    if entry.identity == link.identity:
        return True
    # A copy has numbers of its own: its content decides.
    return _read(dirs, link, md5_of_fd) == entry.md5


def _fault(dirs: DataDirs, link: LocalFile) -> str | None:
    """Why a link is no TsFile that a receiver could take, None if it is one, or if nobody knows."""
    from common.tsfile import read_tail

    tail = _read(dirs, link, read_tail)
    return None if tail is None or tail.complete else f"{tail.status}: {tail.reason}"


def _read(dirs: DataDirs, link: LocalFile, read: Callable[[int], T]) -> T | None:
    """What a link holds; None where it cannot be read: it is kept, and no other file waits."""
    try:
        fd = dirs.trees[link.data_dir].open_read(link.rel)
        try:
            return read(fd)
        finally:
            os.close(fd)
    except (OSError, UnsafePathError) as error:
        _log.warning("%s: its link cannot be read: %s", link.path, error)
        return None


def _has_source(dirs: DataDirs, link: LocalFile) -> bool:
    """Whether a TsFile still stands under this path (of a flat layout: under this name)."""
    try:
        return any(tree.exists(link.path.text) or tree.exists(link.path.name) for _, tree in dirs)
    except UnsafePathError:
        return False  # better sent twice than not at all
