"""The load side of a receiver: its data directories, the senders' folders, the two threads."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from common.durable import Tree, free_bytes
from common.errors import TsferryError
from receiver.load.folders import Folders
from receiver.load.loader import Loader
from receiver.load.loading import finish
from receiver.load.reaper import Reaper
from receiver.load.recovery import recover_folder
from receiver.metadata import records
from receiver.metadata.errors import GuardFailed
from receiver.metadata.guards import Guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.config import ReceiverConfig
    from receiver.load.folders import SenderFolder
    from receiver.metadata.engine import Engine
    from receiver.metadata.state import FileRow

__all__ = ["LoadService"]

log = logging.getLogger(__name__)


class LoadService:
    """What uploads and tasks build on.

    Attributes:
        trees: the data directories, in the order of the configuration; new files go to the first.
        folders: of the senders, in the first data directory.
        loader: loads tasks.
        reaper: removes what nobody needs.
    """

    def __init__(
        self, config: ReceiverConfig, engine: Engine, trees: list[Tree], clock: Callable[[], float]
    ) -> None:
        self._config = config
        self._engine = engine
        self._clock = clock
        self._resources = ExitStack()
        self.trees = trees
        self.folders = Folders(trees[0])
        self.keep_bytes = config.limits.max_unloaded_bytes // 2
        self.loader = Loader(engine, keep_bytes=self.keep_bytes, clock=clock)
        self.reaper = Reaper(
            engine,
            trees,
            self.folders,
            keep_deleted=config.load.keep_deleted,
            leftover_age=config.limits.upload_expiry,
            clock=clock,
        )

    @classmethod
    def open(
        cls, config: ReceiverConfig, engine: Engine, *, clock: Callable[[], float] = time.time
    ) -> Self:
        """Open the data directories and recover every sender's folder.

        A folder that cannot be recovered now does not keep the others from working; it is tried
        again before the next task of its sender.
        """
        with ExitStack() as stack:
            trees = [stack.enter_context(Tree(path, create=True)) for path in config.data_dirs]
            service = cls(config, engine, trees, clock)
            with engine.reading() as state:
                named = {row.uuid: row.directory for row in state.senders.values()}
            for folder in service.folders.scan(named):
                try:
                    service.recover(folder)
                except (TsferryError, OSError):
                    log.exception("recovery has to wait", extra={"folder": folder.directory})
            service.loader.run_due()
            service._resources = stack.pop_all()
        return service

    def recover(self, folder: SenderFolder) -> None:
        """Put a folder in order, and hand what is to be loaded to the loader."""
        pending = recover_folder(
            self._engine, folder, clock=self._clock, keep_bytes=self.keep_bytes
        )
        if pending:
            self.make_known(folder, "")
        for task in pending:
            self.loader.submit(folder, task)

    def settle(self, folder: SenderFolder) -> None:
        """Do what is left of a task whose outcome is committed."""
        with folder.lock:
            if folder.task is not None:
                finish(self._engine, folder, folder.task, keep_bytes=self.keep_bytes)

    def start(self) -> None:
        """Start the threads."""
        self.loader.start()
        self.reaper.start()

    def close(self) -> None:
        """Stop the threads and let the directories go."""
        self.loader.close()
        self.reaper.close()
        for folder in self.folders.all():
            if folder.task is not None:
                folder.task.close()
        self._resources.close()

    def problem(self) -> str | None:
        """Why nothing can be taken in now: too little space that has to stay free."""
        free = self.free_bytes()
        keep = self._config.limits.min_free_bytes
        if free < keep:
            return f"{free} bytes are free on the disk, {keep} have to stay free"
        return None

    def free_bytes(self) -> int:
        """Bytes that are free for new files."""
        return free_bytes(self.trees[0].path)

    def folder_of(self, uuid: str, peer: str, label: str = "") -> SenderFolder:
        """The folder of a sender, made and entered into the engine at its first contact."""
        folder = self.folders.make(uuid, peer)
        self.make_known(folder, label)
        return folder

    def make_known(self, folder: SenderFolder, label: str) -> None:
        """Enter a sender into the engine, or its new label; without a label the old one stays."""
        with self._engine.reading() as state:
            row = state.senders.get(folder.uuid)
        if row is not None and label in ("", row.label):
            return
        directory = folder.directory if row is None else row.directory
        seen = records.SenderSeen(folder.uuid, label, directory)
        try:
            self._engine.commit(
                [seen], [Guard("sender", folder.uuid, 0 if row is None else row.changed)]
            )
        except GuardFailed:
            log.debug("another request has entered the sender", extra={"sender": folder.uuid})

    def find_physical(self, row: FileRow) -> tuple[Tree, str] | None:
        """The data directory that holds a file's bytes, None if none does."""
        for tree in self.trees:
            if tree.exists(row.physical):
                return tree, row.physical
        return None
