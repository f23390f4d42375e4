"""Files of a load at the centre come into the folder of its source, and go to the loader.

They are copied, since a link would let whoever writes to the original change what is loaded. A task
that is cut off before its end is durable is swept, now or at the next start.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Final

import msgspec

from common import crash
from common.console.step_progress import stepping
from common.errors import BusyError, TsferryError
from receiver.datadirs.disks import disk_room
from receiver.load.folder.current_task import start_task
from receiver.operator.centre.centre_entries import (
    deletion_parts,
    entry_of,
    planned_as,
    resource_of_file,
)
from receiver.operator.centre.centre_files import CentreFile
from receiver.operator.centre.copied_in import copy_in
from receiver.transfer.intake import Intake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from common.names import FilePath
    from receiver.config import ReceiverConfig
    from receiver.load.deciding.known_files.candidates import Candidate
    from receiver.load.folder.current_task import CurrentTask, TaskRecord
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.loader import LoadJob
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.operator.centre.centre_runs import LoadRun
    from receiver.transfer.intake import VerifiedBytes

__all__ = ["LoadCarrier"]

log = logging.getLogger(__name__)

_AT_ONCE: Final = 64
"""Files that are flushed into their directories together."""
_NOT_OVER: Final = "waiting for the load before it"


class LoadCarrier:
    """Carries the files of one load at a time."""

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        load: LoadService,
        first_look: Callable[[TaskRecord], int],
        *,
        clock: Callable[[], float],
    ) -> None:
        """Prepare.

        Args:
            config: of the receiver.
            engine: its metadata.
            load: its loader.
            first_look: the look from which on files of a load count.
            clock: seconds since the epoch.
        """
        self._load = load
        self._first_look = first_look
        self._intake = Intake(config, engine, load, clock=clock)

    def carry_out(
        self, run: LoadRun, record: TaskRecord, files: Sequence[tuple[CentreFile, Candidate]]
    ) -> LoadJob:
        """Copy files in, and hand them to the loader: durable when this returns.

        Args:
            run: of the load, whose turn it is.
            record: of its task.
            files: that it loads.

        Raises:
            NoSpaceError: there is no room for them.
            DigestError: one is not what was looked at.
            ConflictError: it was cancelled.
            TsferryError, OSError: it cannot be done now; nothing of it is left.
        """
        folder = self._load.centre_folder()
        run.wait_for(lambda: not (folder.task and folder.task.loading), _NOT_OVER)
        with folder.lock:
            if folder.task is not None:
                self._sweep(folder)  # what could not be when it was cut off
            if folder.task is not None:
                raise BusyError("what the load before this one has left is there", retry_after=5)
            sizes = [each.staged.size for _, each in files]
            room = sum(map(disk_room, sizes))
            self._intake.check_room(folder, sum(sizes), 0, room=room, is_asked=True)
            try:
                current = self._copied(run, folder, record, files)
            except BaseException:
                self._sweep(folder)
                raise
        run.hand_over(current)
        return self._load.loader.submit(folder, current)

    def _copied(
        self,
        run: LoadRun,
        folder: SenderFolder,
        record: TaskRecord,
        files: Sequence[tuple[CentreFile, Candidate]],
    ) -> CurrentTask:
        """Copy files in and end the task: durable when this returns."""
        current = start_task(folder, msgspec.structs.replace(record, manifest=None))
        crash.point("centre.begun")
        current.add_deletions(
            part for file, each in files for part in deletion_parts(file, each.path)
        )
        resources = {each.path.text: resource_of_file(file) for file, each in files}
        current.add_plan(planned_as(each, resources[each.path.text]) for _, each in files)
        first = self._first_look(record)
        staged: list[VerifiedBytes] = []
        told = run.step.told
        for file, candidate in stepping("copying", files, lambda each: each[1].staged.size, told):
            run.go_on()
            path, resource = candidate.path, resources[candidate.path.text]
            if resource is not None and file.resource is not None:
                beside = CentreFile(file.resource, path.resource)
                staged.append(self._copy(folder, beside, path.resource, resource.md5))
            take = self._move if file.staged else self._copy
            staged.append(take(folder, file, path, candidate.staged.md5))
            crash.point("centre.copied")
            if len(staged) >= _AT_ONCE:
                self._intake.stage(folder, staged)
                staged = []
        self._intake.stage(folder, staged)
        crash.point("centre.staged")
        run.go_on_to_load()
        current.end([entry_of(each, first, record.look) for _, each in files], [])
        return current

    def _move(
        self, folder: SenderFolder, file: CentreFile, path: FilePath, expected: str
    ) -> VerifiedBytes:
        """A file that is nobody else's, under a temporary name, flushed and verified."""
        part = f"{folder.uploads}/{secrets.token_hex(16)}.part"
        with folder.tree.open_write(file.staged) as moved:
            moved.sync()
            folder.tree.rename(file.staged, part)
            return self._intake.verify(
                moved.fileno(), path, part, expected, expected=(expected,), planned=None
            )

    def _copy(
        self, folder: SenderFolder, file: CentreFile, path: FilePath, expected: str
    ) -> VerifiedBytes:
        return copy_in(self._intake, folder, file, path, expected)

    def _sweep(self, folder: SenderFolder) -> None:
        """Remove what was copied, and the task; what cannot be now is at the next start."""
        try:
            folder.forget_task()
            folder.staged.discard([each.path for each in folder.staged.all()])
            folder.sweep()
        except (TsferryError, OSError) as error:
            log.warning("what a load has left is swept later", extra={"error": str(error)})
