"""What a round has open for one receiver: lists, logs, links, and what is remembered of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from common import wire
from common.durable import Tree
from common.wire import History, TaskState
from sender.kept.handed import Handed
from sender.kept.identity import patient_lock
from sender.kept.loaded_list.ledger import Ledger
from sender.kept.loaded_list.snapshot import Snapshot
from sender.kept.loaded_list.sync_logs import SyncLogs
from sender.kept.receiver_file import ReceiverFile
from sender.kept.seen_looks.looks import Looks
from sender.kept.troubles import Troubles
from sender.select.data_dirs import DataDirs
from sender.select.facts import ContentFacts
from sender.select.found import LocalFile

__all__ = ["ReceiverState", "changing_troubles"]


@contextmanager
def changing_troubles(sync: Tree, directory: str) -> Iterator[Troubles]:
    """A receiver's list of troubles, for one process at a time: commands change it beside a daemon.

    Raises:
        LockedError: another process keeps it for longer than a change takes.
    """
    sync.make_dirs(directory)
    with patient_lock(sync, f"{directory}/troubles.lock"):
        yield Troubles.open(sync, directory, clock=time.time)


@dataclass
class ReceiverState:
    """Open for the length of one round.

    Attributes:
        dirs: the data directories that count.
        ledger: the list of loaded files.
        logs: sync.log.
        snapshot: the links.
        troubles: files that were not taken.
        memory: of the receiver.
        looks: what was seen together, and when first.
        handed: how far a forwarding centre has handed up what is beside the list.
        facts: reads contents and times of files.
        md5_known: MD5 of a file where it is known without reading it.
        sync: `<schema dir>/sync`.
        directory: `<host>_<port>`.
    """

    dirs: DataDirs
    ledger: Ledger
    logs: SyncLogs
    snapshot: Snapshot
    troubles: Troubles
    memory: ReceiverFile
    looks: Looks
    handed: Handed
    facts: ContentFacts
    md5_known: Callable[[LocalFile], str | None]
    sync: Tree
    directory: str

    @classmethod
    def open(
        cls,
        sync: Tree,
        dirs: DataDirs,
        directory: str,
        facts: ContentFacts,
        *,
        repair: bool = True,
        md5_known: Callable[[LocalFile], str | None] = lambda file: None,
        looks: Looks | None = None,
    ) -> ReceiverState:
        """Open what one receiver has; `sync` and `dirs` stay the caller's to close.

        Args:
            sync: `<schema dir>/sync`.
            dirs: the data directories.
            directory: `<host>_<port>`.
            facts: reads files.
            repair: finish what was interrupted; False writes nothing.
            md5_known: see the class.
            looks: where they are open already.
        """
        return cls(
            dirs,
            Ledger.open(dirs, directory, repair=repair),
            SyncLogs(dirs, directory),
            Snapshot(dirs, directory),
            Troubles.open(sync, directory, clock=time.time),
            ReceiverFile.open(sync, directory),
            Looks.open(sync, directory) if looks is None else looks,
            Handed.open(sync, directory),
            facts,
            md5_known,
            sync,
            directory,
        )

    @contextmanager
    def changing_troubles(self) -> Iterator[Troubles]:
        """The list of troubles as it is now, for a change; what is read afterwards has it too."""
        with changing_troubles(self.sync, self.directory) as troubles:
            self.troubles = troubles
            yield troubles

    def handed_to(self, check: wire.CheckAnswer) -> Callable[[str, str, int], bool] | None:
        """What the receiver was told beside the list; None where it takes no origins."""
        if not check.origins:
            return None
        return self.handed.has if check.history is History.CONTINUES else lambda *_: False

    def note(self, answer: wire.TaskAnswer) -> None:
        """Remember the epoch of an answer, and once there is a commit that and what it holds."""
        now = self.memory.now
        if answer.state is TaskState.DONE and answer.commit:
            self.memory.update(
                epoch=answer.epoch or now.epoch,
                last_task=wire.TaskMark(task=answer.task, commit=answer.commit),
                newest_commit=max(now.newest_commit, answer.commit),
                held_records=tuple(answer.held_records),
            )
        elif answer.epoch is not None:
            self.memory.update(epoch=answer.epoch)
