"""The sync.log of a running task: one in each data directory that the task touches.

The lines are those of `common.formats.linelog`. All logs of a task carry its id, so each stands for
itself after a crash, whichever of them were written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import crash
from common.errors import BusyError
from common.formats.linelog import Phase, SyncLog, parse_sync
from sender.kept.loaded_list.ledger import sender_dir, sender_dirs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from common.formats.linelog import SyncState
    from common.names import FilePath
    from sender.select.data_dirs import DataDirs

__all__ = ["SyncLogs"]

_NAME = "sync.log"


class SyncLogs:
    """The logs of one receiver's task in all mounted data directories."""

    def __init__(self, dirs: DataDirs, endpoint: str) -> None:
        self._trees = dict(dirs.trees)
        self._rel = f"{sender_dir(endpoint)}/{_NAME}"
        self._base = sender_dir(endpoint)
        self._looked_at = sender_dirs(dirs, endpoint)
        self._open: dict[Path, SyncLog] = {}
        self._homes: Mapping[FilePath, Path] = {}

    def left_over(self) -> dict[Path, SyncState]:
        """What the logs on disk say; data directories without one are left out."""
        found = {}
        for data_dir, tree in self._trees.items():
            rel = f"{self._looked_at[data_dir]}/{_NAME}"
            if tree.exists(rel):
                found[data_dir] = parse_sync(tree.read(rel))
        return found

    def begin(self, task: str, homes: Mapping[FilePath, Path]) -> None:
        """Record `sync start` in each data directory of the task.

        Logs of an earlier task must be gone (`sender.round.recovery`); those of the same task go
        on.

        Args:
            task: its id.
            homes: data directory of every path that the task adds or deletes (`TaskPlan.homes`).

        Raises:
            BusyError: the log of another task is still there.
        """
        self._homes = homes
        for data_dir in sorted(set(homes.values())):
            self._trees[data_dir].make_dirs(self._base)
            log = SyncLog.open(self._trees[data_dir], self._rel)
            self._open[data_dir] = log
            if log.state.task not in (None, task):
                raise BusyError(f"{data_dir}: sync.log of task {log.state.task} is not folded in")
            log.start(task)
            crash.point("synclogs.begun")

    def deleted(self, paths: Iterable[FilePath]) -> None:
        """Record paths whose deletion the receiver has taken."""
        for data_dir, mine in self._by_dir(paths).items():
            self._open[data_dir].deleted(mine)
            crash.point("synclogs.deleted")

    def has_deletions(self) -> bool:
        """Whether a receiver has taken deletions of this task already."""
        return any(log.state.deleted for log in self._open.values())

    def sending(self) -> None:
        """Record that all deletions are with the receiver: a resumed task may rely on it."""
        for log in self._open.values():
            log.reach(Phase.SENDING)
            crash.point("synclogs.sending")

    def files(self, paths: Iterable[FilePath]) -> None:
        """Record paths that the receiver has whole; no deletions can follow."""
        for data_dir, mine in self._by_dir(paths).items():
            self._open[data_dir].files(mine)
            crash.point("synclogs.files")

    def end(self) -> None:
        """Record `sync tsfile end` and `sync end` in all logs of the task."""
        for log in self._open.values():
            log.reach(Phase.ENDED)
            crash.point("synclogs.ended")

    def remove(self) -> None:
        """Delete the logs, in all mounted data directories, after their outcome is folded in."""
        self.close()
        for tree in self._trees.values():
            if tree.unlink(self._rel):
                crash.point("synclogs.removed")

    def close(self) -> None:
        """Close what is open; the logs stay."""
        for log in self._open.values():
            log.close()
        self._open = {}

    def _by_dir(self, paths: Iterable[FilePath]) -> dict[Path, list[FilePath]]:
        found: dict[Path, list[FilePath]] = {}
        for path in paths:
            found.setdefault(self._homes[path], []).append(path)
        return found
