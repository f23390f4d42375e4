"""The load side of a receiver: its data directories, the senders' folders, the threads."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from common.durable import is_read_only
from common.errors import ForbiddenError, Transient, TsferryError
from common.system_errors import read_only_disk
from receiver.datadirs.disks import AwayError, Disks
from receiver.load.folder.obstacles import is_of_one_path, misplaced, obstacle
from receiver.load.folder.sender_folder import FOLDERS_ROOT, Folders, folder_name
from receiver.load.folder_recovery import recover_folder
from receiver.load.incoming_space import IncomingSpace
from receiver.load.loader import Loader
from receiver.load.loading import finish
from receiver.load.moving.mover import Mover
from receiver.load.upkeep.directory_checks import DirectoryChecks
from receiver.load.upkeep.directory_nodes import register_directories
from receiver.load.upkeep.reaper import Reaper
from receiver.load.upkeep.registrar import Registrar
from receiver.load.upkeep.ttl import Ttl
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import CENTRE, centre_uuid, is_centre
from receiver.metadata.model.errors import GuardFailed
from receiver.metadata.query.lost import lost_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from common.durable import Tree
    from receiver.config import ReceiverConfig
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.metadata.engine import Engine

__all__ = ["LoadService"]

log = logging.getLogger(__name__)

_TRY_AGAIN = 60.0


class LoadService:
    """What uploads and tasks build on.

    Attributes:
        disks: the data directories; new files go to that of their sender's folder.
        folders: of the senders.
        loader: loads tasks.
        reaper: removes what nobody needs.
        ttl: deletes what has expired.
        registrar: enters files into the schema that were loaded before there was one.
        mover: empties data directories that are drained.
        checks: compares the data directories with the catalogue.
        after_recovery: called with a folder that was put in order.
        space: for what comes.
    """

    def __init__(self, config: ReceiverConfig, engine: Engine, disks: Disks) -> None:
        self._config = config
        self._engine = engine
        self._resources = ExitStack()
        self.disks = disks
        self.folders = Folders(disks.trees)
        self._finding = threading.Lock()
        self._in_order: set[str] = set()
        self.after_recovery: list[Callable[[SenderFolder], None]] = []
        self.space = IncomingSpace(disks, self.folders, keep_free=config.limits.min_free_bytes)
        self.keep_bytes = config.limits.max_unloaded_bytes // 2
        self.ttl = Ttl(engine, unit=config.time_unit, every=config.metadata.ttl_every)
        self.registrar = Registrar(engine, disks)
        self.loader = Loader(
            engine,
            self.ttl,
            disks,
            keep_bytes=self.keep_bytes,
            tokens_required=config.auth.require == "always",
            deletes=config.deletes,
            clock=engine.clock,
        )
        self.reaper = Reaper(
            engine,
            disks,
            self.folders,
            keep_deleted=config.load.keep_deleted,
            leftover_age=config.limits.upload_expiry,
            is_pressed=self.space.is_pressed,
        )
        self.mover = Mover(
            engine,
            disks,
            self.folders,
            keep=config.load.keep_deleted,
            keep_free=config.limits.min_free_bytes,
            rate=config.nodes.move_rate,
            leave_folders=self.leave_drained,
        )
        self.checks = DirectoryChecks(
            engine,
            disks,
            every=config.nodes.check_every,
            rate=config.nodes.check_rate,
            doubled=self.mover.clear_copies_of,
            clock=engine.clock,
        )

    @classmethod
    def open(cls, config: ReceiverConfig, engine: Engine) -> Self:
        """Open the data directories and recover every sender's folder.

        A folder that cannot be recovered now does not keep the others from working; it is tried
        again before the next task of its sender.

        One that is away does not keep the rest from being read; `problem` tells of it.

        Raises:
            ConfigError: the schema directory is another engine's.
        """
        with ExitStack() as stack:
            disks = stack.enter_context(Disks.open(config, engine))
            for away in disks.away():
                log.error("%s", away)
            register_directories(engine, disks)
            service = cls(config, engine, disks)
            service._find_folders()
            service.loader.run_due()
            service._resources = stack.pop_all()
        return service

    def _find_folders(self) -> None:
        with self._engine.reading() as state:
            named = {row.uuid: row.directory for row in state.senders.values()}
        for folder in self.folders.scan(named):
            try:
                with self.noting_obstacles(folder.uuid, folder.root):
                    self._recover_once(folder)
            except (TsferryError, OSError) as error:
                told = {"folder": folder.directory, "error": str(error)}
                log.error("recovery has to wait", extra=told)

    def _find_again(self) -> str | None:
        """Look again, where something was in the way of all folders; what is so still."""
        if self.folders.problem is not None:
            with self._finding:
                if self.folders.problem is not None:
                    self._find_folders()
        return self.folders.problem

    def _recover_once(self, folder: SenderFolder) -> None:
        if folder.uuid in self._in_order:  # no lock, as a load holds the folder's
            return
        with folder.lock:
            if not folder.recovered:
                self.recover(folder)
        self._in_order.add(folder.uuid)

    @contextmanager
    def noting_obstacles(self, uuid: str, root: str) -> Iterator[None]:
        """Work on a sender's folder; what is in its way is noted, for as long as it is.

        Args:
            uuid: of the sender.
            root: the folder, relative to the data directory.

        Raises:
            Transient: something is in the way; it says what.
        """
        try:
            yield
        except (OSError, TsferryError) as error:
            if not is_of_one_path(error):
                raise
            folder = self.folders.find(uuid)
            tree = self.disks.roomiest() if folder is None else folder.tree
            name = str(getattr(error, "filename", None)).removeprefix(f"{tree.path}/")
            rel = name if name.startswith(root) else f"{root}/data/.uploads/"
            why = obstacle(tree, rel, error)
            if rel.rpartition("/")[0] == root:  # a file of the folder itself
                why = misplaced(tree, rel, directory=False) or why
            self.folders.hindered[uuid] = why
            raise Transient(
                f"nothing of sender {uuid} can be taken in: {why}", retry_after=_TRY_AGAIN
            ) from error
        else:
            self.folders.hindered.pop(uuid, None)

    def recover(self, folder: SenderFolder) -> None:
        """Put a folder in order, and hand what is to be loaded to the loader."""
        pending = recover_folder(
            self._engine,
            self.disks.standing(),
            folder,
            clock=self._engine.clock,
            keep_bytes=self.keep_bytes,
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
                finish(
                    self._engine,
                    self.disks.standing(),
                    folder,
                    folder.task,
                    keep_bytes=self.keep_bytes,
                )

    def start(self) -> None:
        """Start the threads."""
        self.loader.start()
        self.reaper.start()
        self.ttl.start()
        self.registrar.start()
        self.mover.start()
        self.checks.start()

    def close(self) -> None:
        """Stop the threads and let the directories go."""
        self.checks.close()
        self.mover.close()
        self.registrar.close()
        self.ttl.close()
        self.loader.close()
        self.reaper.close()
        for folder in self.folders.all():
            if folder.task is not None:
                folder.task.close()
        self._resources.close()

    def problem(self) -> str | None:
        """What keeps it from its work: a directory that is away or read-only, too little space."""
        away = self.disks.away()
        if away:
            return "; ".join(map(str, away))
        for tree in self.disks.standing():
            if is_read_only(tree.path):
                return read_only_disk(str(tree.path)).message
        hindered = self._find_again()
        if hindered is not None:
            return f"nothing can be received: {hindered}"
        return self.space.problem() or self.loader.no_space

    def hindered(self) -> list[str]:
        """Each sender whose folder cannot be used, or not for all that it is for, and why."""
        found = [f"sender {uuid}: {why}" for uuid, why in sorted(self.folders.hindered.items())]
        return found + [
            f"sender {folder.uuid}: {why}"
            for folder in self.folders.all()
            for why in sorted(folder.hindered.values())
        ]

    def stuck(self) -> list[str]:
        """Each verified file that cannot be put in its place, and what is in the way."""
        return [
            f"sender {folder.uuid}: {path}: {why}"
            for folder in self.folders.all()
            for path, why in sorted(folder.stuck.items())
            if folder.staged.get(path) is not None
        ]

    def concerns(self) -> list[str]:
        """What does not come through, in numbers."""
        found: list[str] = []
        hindered = len({each.partition(":")[0] for each in self.hindered()})
        if hindered:
            folders = (
                "The folder of 1 sender has"
                if hindered == 1
                else (f"The folders of {hindered} senders have")
            )
            found.append(f"{folders} something in the way: `tsferry-receiver status` says what")
        stuck = len(self.stuck())
        if stuck:
            files = "1 file" if stuck == 1 else f"{stuck} files"
            found.append(
                f"{files} cannot be put in place: `tsferry-receiver status` says what is in the way"
            )
        over = len(self.space.at_quota())
        if over:
            senders = "1 sender has" if over == 1 else f"{over} senders have"
            found.append(
                f"{senders} as much waiting to be loaded as limits.max_unloaded_bytes allows"
            )
        with self._engine.reading() as state:
            held = len(state.held_deletes.waiting())
            lost = len(lost_files(state))
        if held:
            lists = "1 list of deletes is" if held == 1 else f"{held} lists of deletes are"
            found.append(f"{lists} held: `tsferry-receiver deletes list` says what")
        if lost:
            files = "1 file is" if lost == 1 else f"{lost} files are"
            found.append(f"{files} lost, at both ends: `tsferry-receiver lost` says which")
        return found

    def folder_of(self, uuid: str, peer: str) -> SenderFolder:
        """The folder of a sender, made and entered into the engine at its first contact.

        It is in order then: what an earlier process left is recovered.

        Raises:
            AwayError: the directory that it is in is away.
            ForbiddenError: the uuid is that of the centre's own loads.
            Transient: something is in the way of it.
        """
        if is_centre(uuid):
            raise ForbiddenError(f"{uuid} is no sender: it is for loads at the centre")
        return self._folder_of(uuid, peer)

    def centre_folder(self) -> SenderFolder:
        """The folder of what is loaded at the centre itself; raises as `folder_of` does."""
        uuid = centre_uuid(self._engine.uuid)
        folder = self._folder_of(uuid, CENTRE)
        self.make_known(uuid, folder.directory, CENTRE)
        return folder

    def _folder_of(self, uuid: str, peer: str) -> SenderFolder:
        folder = self.folders.find(uuid)
        tree = self._directory_for(uuid) if folder is None else folder.tree
        self.disks.check(tree)
        hindered = self._find_again()
        if hindered is not None:
            raise Transient(f"nothing can be received: {hindered}", retry_after=_TRY_AGAIN)
        folder = self.folders.find(uuid)
        name = folder_name(peer, uuid) if folder is None else folder.directory
        name = self.make_known(uuid, name, "")
        with self.noting_obstacles(uuid, f"{FOLDERS_ROOT}/{name}"):
            if folder is None:
                folder = self.folders.make(uuid, name, tree)
            self._recover_once(folder)
            self._make_room(folder)
        return folder

    def _directory_for(self, uuid: str) -> Tree:
        """Where the folder of a sender is to be made.

        Raises:
            AwayError: no directory stands; or one is away, and this sender was here before this
                process: its folder may be there.
        """
        if self.folders.were_of(uuid):
            self.disks.check_all()
        return self.disks.roomiest()

    def leave_drained(self) -> int:
        """Let folders leave directories that are drained, if nothing is under way; how many left.

        A sender that comes moves its folder by itself; others may never come.
        """
        gone = 0
        for folder in self.folders.all():
            if self.disks.is_draining(folder.tree):
                before = folder.tree
                try:
                    with self.noting_obstacles(folder.uuid, folder.root):
                        self._make_room(folder)
                except Transient as error:  # `status` says what; others can go
                    log.info("a folder stays", extra={"sender": folder.uuid, "why": error.message})
                gone += folder.tree is not before
        return gone

    def _make_room(self, folder: SenderFolder) -> None:
        """Let a folder go on where there is more room, if it has little and nothing is under way.

        What waits here for a round that never comes keeps it: its bytes are not moved.
        """
        if len(self.disks.trees) < 2:
            return
        if not self.space.is_short(folder.tree) and not self.disks.is_draining(folder.tree):
            return
        try:
            tree = self.disks.roomiest()
        except AwayError:
            return  # there is nowhere else for now
        if tree is folder.tree or self.space.is_short(tree) or not self.folders.is_usable(tree):
            return
        with folder.lock:
            if folder.is_idle() and not folder.hindered:
                before = folder.tree.path
                folder.go_to(tree)
                log.info(
                    "a sender's files go to another data directory",
                    extra={"sender": folder.uuid, "from": str(before), "to": str(tree.path)},
                )

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
