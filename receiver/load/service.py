"""The load side of a receiver: its data directories, the senders' folders, the two threads."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from common.durable import Tree, free_bytes
from common.errors import ConfigError, TsferryError
from receiver.load.folder.sender_folder import Folders, folder_name, looks_unmounted
from receiver.load.folder_recovery import recover_folder
from receiver.load.loader import Loader
from receiver.load.loading import finish
from receiver.load.upkeep.reaper import Reaper
from receiver.load.upkeep.registrar import Registrar
from receiver.load.upkeep.ttl import Ttl, steady
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.config import ReceiverConfig
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.metadata.engine import Engine

__all__ = ["LoadService"]

log = logging.getLogger(__name__)


class LoadService:
    """What uploads and tasks build on.

    Attributes:
        trees: the data directories, in the order of the configuration; new files go to the first.
        folders: of the senders, in the first data directory.
        loader: loads tasks.
        reaper: removes what nobody needs.
        ttl: deletes what has expired.
        registrar: enters files into the schema that were loaded before there was one.
        after_recovery: called with a folder that was put in order.
    """

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        trees: list[Tree],
        clock: Callable[[], float],
        monotonic: Callable[[], float] = steady,
    ) -> None:
        self._config = config
        self._engine = engine
        self._clock = clock
        self._resources = ExitStack()
        self.trees = trees
        self.folders = Folders(trees[0])
        self.after_recovery: list[Callable[[SenderFolder], None]] = []
        self.keep_bytes = config.limits.max_unloaded_bytes // 2
        self.ttl = Ttl(
            engine,
            config.schema_dir,
            unit=config.time_unit,
            every=config.metadata.ttl_every,
            jump=config.metadata.clock_jump,
            clock=clock,
            monotonic=monotonic,
        )
        self.registrar = Registrar(engine, trees)
        self.loader = Loader(engine, self.ttl, keep_bytes=self.keep_bytes, clock=clock)
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
        cls,
        config: ReceiverConfig,
        engine: Engine,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = steady,
    ) -> Self:
        """Open the data directories and recover every sender's folder.

        A folder that cannot be recovered now does not keep the others from working; it is tried
        again before the next task of its sender.

        Raises:
            ConfigError: a data directory that files were loaded into is empty.
        """
        with engine.reading() as state:
            named = {row.uuid: row.directory for row in state.senders.values()}
            unmounted = [path for path in config.data_dirs if looks_unmounted(path, state)]
        if unmounted:
            raise ConfigError(
                f"data_dirs: {unmounted[0]} is empty, although files were loaded into it: is its "
                f"disk mounted? If they are lost, make {unmounted[0]}/sync-receiver and run "
                "`tsferry-receiver fsck --repair`"
            )
        with ExitStack() as stack:
            trees = [stack.enter_context(Tree(path, create=True)) for path in config.data_dirs]
            service = cls(config, engine, trees, clock, monotonic)
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
            self.make_known(folder.uuid, folder.directory, "")
        for task in pending:
            self.loader.submit(folder, task)
        for call in self.after_recovery:
            call(folder)

    def settle(self, folder: SenderFolder) -> None:
        """Do what is left of a task whose outcome is committed."""
        with folder.lock:
            if folder.task is not None:
                finish(self._engine, folder, folder.task, keep_bytes=self.keep_bytes)

    def start(self) -> None:
        """Start the threads."""
        self.loader.start()
        self.reaper.start()
        self.ttl.start()
        self.registrar.start()

    def close(self) -> None:
        """Stop the threads and let the directories go."""
        self.registrar.close()
        self.ttl.close()
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

    def folder_of(self, uuid: str, peer: str) -> SenderFolder:
        """The folder of a sender, made and entered into the engine at its first contact."""
        folder = self.folders.find(uuid)
        if folder is None:
            folder = self.folders.make(uuid, self.make_known(uuid, folder_name(peer, uuid), ""))
        else:
            self.make_known(uuid, folder.directory, "")
        return folder

    def make_known(self, uuid: str, directory: str, label: str) -> str:
        """Enter a sender into the engine, or its new label; without a label the old one stays.

        Returns:
            the name of its folder, which is `directory` at the first contact and stays.
        """
        while True:
            with self._engine.reading() as state:
                row = state.senders.get(uuid)
            if row is not None and label in ("", row.label):
                return row.directory
            if row is not None:
                directory = row.directory
            guard = Guard("sender", uuid, 0 if row is None else row.changed)
            try:
                self._engine.commit([records.SenderSeen(uuid, label, directory)], [guard])
            except GuardFailed:
                continue  # another request has entered it
            return directory
