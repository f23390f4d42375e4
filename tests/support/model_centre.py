"""A receiver as a dictionary, and the local half of a round against it, for crash tests.

The round does on disk what a real one does, in the same order; only the bytes do not travel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from common import crash
from common.digests import md5_of_fd
from common.errors import UnreachableError
from common.names import FilePath
from common.wire import InventoryEntry, Outcome, Propagate, Result, TaskAnswer, TaskState
from sender.plan.plan import plan
from sender.plan.plan_options import PlanOptions
from sender.plan.task_plan import TaskPlan
from sender.round.recovery import RecoveryReport, recover
from sender.select.entry import Entry
from tests.support.site import Site, rebuild

Fate = Callable[[FilePath], Result]
"""What the receiver makes of a file that is sent."""


def load(_: FilePath) -> Result:
    """All is loaded."""
    return Result.LOADED


@dataclass
class Centre:
    """What a receiver has, and the outcomes that it stores.

    Attributes:
        loaded: path -> MD5.
        outcomes: task -> answer.
        loads: how often each (path, MD5) was loaded.
        up: whether it answers.
    """

    loaded: dict[FilePath, str] = field(default_factory=dict)
    outcomes: dict[str, TaskAnswer] = field(default_factory=dict)
    loads: dict[tuple[FilePath, str], int] = field(default_factory=dict)
    up: bool = True

    def commit(self, task: str, plan: TaskPlan, sent: Mapping[FilePath, str], fate: Fate) -> None:
        """Load a task, once; a partition with a file that fails keeps what is to be deleted."""
        if task in self.outcomes:
            return
        outcomes: dict[FilePath, Result] = {}
        for path, md5 in sent.items():
            result = Result.ALREADY if self.loaded.get(path) == md5 else fate(path)
            outcomes[path] = result
        failed = {
            path.group
            for path, result in outcomes.items()
            if result not in (Result.LOADED, Result.ALREADY)
        }
        for deletion in plan.deletions:
            held = deletion.path.group in failed
            outcomes[deletion.path] = Result.HELD if held else Result.DELETED
        for path, result in outcomes.items():
            if result is Result.LOADED:
                self.loaded[path] = sent[path]
                self.loads[path, sent[path]] = self.loads.get((path, sent[path]), 0) + 1
            elif result is Result.DELETED:
                self.loaded.pop(path, None)
        answers = [Outcome(path=path.text, result=result) for path, result in outcomes.items()]
        commit = len(self.outcomes) + 1
        self.outcomes[task] = TaskAnswer(
            task=task, state=TaskState.DONE, commit=commit, outcomes=answers
        )

    def outcome_of(self, task: str) -> TaskAnswer | None:
        """As the receiver answers."""
        if not self.up:
            raise UnreachableError("no answer")
        return self.outcomes.get(task)

    def inventory(self) -> list[InventoryEntry]:
        """All that is loaded."""
        return [
            InventoryEntry(path=path.text, size=0, md5=md5, state="loaded")
            for path, md5 in self.loaded.items()
        ]


def local_round(site: Site, centre: Centre, task_id: Callable[[], str], fate: Fate = load) -> None:
    """One whole round: recover, scan, plan, and every task of it."""
    dirs = site.reopen()
    ledger = site.ledger()
    logs = site.logs()
    try:
        report = recover(ledger, logs, site.snapshot(), dirs, centre.outcome_of)
        if ledger.doubts:
            scan = site.scan(ledger.entries)
            sizes = {path: file.size for path, file in scan.files.items()}
            inventory = [
                InventoryEntry(
                    path=each.path,
                    size=sizes.get(FilePath.parse(each.path), 0),
                    md5=each.md5,
                    state=each.state,
                )
                for each in centre.inventory()
            ]
            rebuild(ledger, inventory, scan.files)
        scan = site.scan(ledger.entries).with_last_copies(report.last_copies)
        options = PlanOptions(Propagate.ALL, accept_source=True, task_max_files=3)
        todo = plan(scan, ledger.entries, {}, options, site.scanner.facts(dirs))
        ledger.refresh(todo.refreshed)
        for task in todo.tasks:
            _task(site, centre, task_id(), task, fate)
    finally:
        logs.close()


def _task(site: Site, centre: Centre, task_id: str, task: TaskPlan, fate: Fate) -> RecoveryReport:
    ledger, logs, snapshot = site.ledger(), site.logs(), site.snapshot()
    try:
        logs.begin(task_id, task.homes)
        taken = snapshot.take(each.file for each in task.additions)
        task = task.without([each.path for each in taken.dropped])
        logs.deleted(task.deleted_paths)
        logs.sending()
        sent: dict[FilePath, str] = {}
        for each in taken.files:
            fd = snapshot.open(each)
            sent[each.path] = md5_of_fd(fd)
            os.close(fd)
            logs.files([each.path])
        ledger.sent(Entry.of(each.file, sent[each.path], None) for each in taken.files)
        logs.end()
        crash.point("model.before_commit")
        centre.commit(task_id, task, sent, fate)
        crash.point("model.after_commit")
        return recover(ledger, logs, snapshot, site.dirs, centre.outcome_of)
    finally:
        logs.close()
