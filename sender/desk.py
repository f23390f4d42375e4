"""What a round has open for one receiver: lists, logs, links, and what is remembered of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from common import wire
from common.durable import Tree
from common.wire import TaskState
from sender.datadirs import DataDirs
from sender.ledger import Ledger
from sender.local import LocalFile
from sender.memory import Memory
from sender.plan import Facts
from sender.snapshot import Snapshot
from sender.synclogs import SyncLogs
from sender.troubles import Troubles

__all__ = ["Desk"]


@dataclass
class Desk:
    """Open for the length of one round.

    Attributes:
        dirs: the data directories that count.
        ledger: the list of loaded files.
        logs: sync.log.
        snapshot: the links.
        troubles: files that were not taken.
        memory: of the receiver.
        facts: reads contents and times of files.
        md5_known: MD5 of a file where it is known without reading it.
    """

    dirs: DataDirs
    ledger: Ledger
    logs: SyncLogs
    snapshot: Snapshot
    troubles: Troubles
    memory: Memory
    facts: Facts
    md5_known: Callable[[LocalFile], str | None]

    @classmethod
    def open(
        cls,
        sync: Tree,
        dirs: DataDirs,
        directory: str,
        facts: Facts,
        *,
        repair: bool = True,
        md5_known: Callable[[LocalFile], str | None] = lambda file: None,
    ) -> Desk:
        """Open what one receiver has; `sync` and `dirs` stay the caller's to close.

        Args:
            sync: `<schema dir>/sync`.
            dirs: the data directories.
            directory: `<host>_<port>`.
            facts: reads files.
            repair: finish what was interrupted; False writes nothing.
            md5_known: see the class.
        """
        return cls(
            dirs,
            Ledger.open(dirs, directory, repair=repair),
            SyncLogs(dirs, directory),
            Snapshot(dirs, directory),
            Troubles.open(sync, directory, clock=time.time),
            Memory.open(sync, directory),
            facts,
            md5_known,
        )

    def note(self, answer: wire.TaskAnswer) -> None:
        """Remember the epoch of an answer, and its commit once there is one."""
        now = self.memory.now
        if answer.state is TaskState.DONE and answer.commit:
            self.memory.update(
                epoch=answer.epoch or now.epoch,
                last_task=wire.TaskMark(task=answer.task, commit=answer.commit),
                newest_commit=max(now.newest_commit, answer.commit),
            )
        elif answer.epoch is not None:
            self.memory.update(epoch=answer.epoch)
