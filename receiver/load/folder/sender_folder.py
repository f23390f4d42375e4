"""A sender's folder beneath `sync-receiver`, and how it is found: by uuid, the ip is a label.

It stands in one of the data directories; what is loaded of it goes there by renaming alone. When
nothing is under way it may go on in another one; what is kept of what was loaded, and of what was
refused, stays behind in a folder of the same name.

sync-receiver/<escaped ip>_<sender uuid>/
sync.log  load.log  sync.end     the running task, as users know it
task.json                        what it is to do: written at its start and at its end
plan.log                         its planned files, a JSON line each
verified.log                     which files in data/ are verified (`load.folder.staged`)
data/<path>                      verified files
data/.uploads/<id>.part .upload  partial uploads (`transfer.receiving.partial`)
schema.stage                     blocks of its schema log (`load.folder.schema_stage`)
quarantine/<name>                bytes of refused files, for an operator
manifests/<task id>.tsf          what the sender says of each series (`load.folder.manifests`)
writes/<id>/                     of the centre's own folder: what jobs write, before its commit
"""

from __future__ import annotations

import logging
import stat
import threading
from collections import defaultdict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from common import crash
from common.errors import NameRefusedError, TsferryError
from common.names import escape, is_sender_uuid, unescape
from receiver.load.folder.current_task import (
    DELETIONS_LOG,
    LOAD_LOG,
    MANIFEST_LOG,
    PLAN_LOG,
    SYNC_END,
    SYNC_LOG,
    TASK_RECORD,
)
from receiver.load.folder.kept_facts import KeptFacts
from receiver.load.folder.obstacles import is_of_one_path, misplaced, obstacle
from receiver.load.folder.schema_stage import SchemaStage
from receiver.load.folder.staged import Staged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from common.durable import Tree
    from common.names import FilePath
    from receiver.load.folder.current_task import CurrentTask

__all__ = [
    "FOLDERS_ROOT",
    "VERIFIED_LOG",
    "Folders",
    "SenderFolder",
    "folder_name",
    "folders_in",
    "uuid_of",
]

log = logging.getLogger(__name__)

FOLDERS_ROOT = "sync-receiver"
VERIFIED_LOG = "verified.log"
_STAGE = "schema.stage"
_ROOMS = "", "data", "data/.uploads", "quarantine", "manifests"
_KEPT = SYNC_LOG, LOAD_LOG, SYNC_END, TASK_RECORD, PLAN_LOG, DELETIONS_LOG, MANIFEST_LOG


def folder_name(peer: str, uuid: str) -> str:
    """`<escaped ip>_<uuid>`; an unknown address is called `unknown`."""
    return f"{escape(peer) or 'unknown'}_{uuid}"


def uuid_of(name: str) -> str | None:
    """The uuid in the name of a sender's folder, None if it is no such name."""
    label, _, uuid = name.rpartition("_")
    if not label or not is_sender_uuid(uuid):
        return None
    try:
        unescape(label)
    except NameRefusedError:
        return None
    return uuid


def folders_in(tree: Tree) -> int:
    """How many senders have their folders in a data directory now."""
    names = (name for name, _ in tree.listing(FOLDERS_ROOT) if uuid_of(name) is not None)
    found = 0
    for name in names:
        with suppress(OSError, TsferryError):  # it is said elsewhere what is in the way
            found += tree.exists(f"{FOLDERS_ROOT}/{name}/data")
    return found


class SenderFolder:
    """One sender's folder, and what is going on in it.

    Attributes:
        tree: the data directory that it is in now.
        uuid: of the sender.
        directory: its name beneath `sync-receiver`.
        lock: held by whoever changes the task or the staged files; a load holds it all along.
        staged: the verified files.
        facts: what was read of those files as they came.
        schema: what has come of the sender's schema log.
        task: the task that is open or loading, None between tasks.
        recovered: whether what a crash left here was put in order since this process runs.
        stuck: what keeps verified files from their places, by path, as the last load found it.
        hindered: what is in the way of something beside the files, which go on, by its name.
    """

    def __init__(
        self, tree: Tree, uuid: str, directory: str, facts: KeptFacts | None = None
    ) -> None:
        self.uuid = uuid
        self.directory = directory
        self.lock = threading.RLock()
        self.root = f"{FOLDERS_ROOT}/{directory}"
        self._be_in(tree)
        self.facts = facts if facts is not None else KeptFacts()
        self.task: CurrentTask | None = None
        self.recovered = False
        self.stuck: dict[str, str] = {}
        self.hindered: dict[str, str] = {}

    def _be_in(self, tree: Tree) -> None:
        self.tree = tree
        self.staged = Staged(tree, self.at(VERIFIED_LOG), self.at("data"))
        self.schema = SchemaStage(tree, self.at(_STAGE))

    def at(self, name: str) -> str:
        """The path of something in this folder, relative to the data directory."""
        return f"{self.root}/{name}"

    def staged_at(self, path: FilePath) -> str:
        """Where the verified file `path` lies, relative to the data directory."""
        return self.at(f"data/{path.text}")

    @property
    def uploads(self) -> str:
        """Where the partial uploads are."""
        return self.at("data/.uploads")

    @property
    def writes(self) -> str:
        """Where the files of writes are that are not committed."""
        return self.at("writes")

    @property
    def quarantine(self) -> str:
        """Where the bytes of refused files are."""
        return self.at("quarantine")

    @property
    def manifests(self) -> str:
        """Where the tables of series are."""
        return self.at("manifests")

    def is_idle(self) -> bool:
        """Whether nothing is under way in it; the caller holds its lock."""
        return (
            self.task is None
            and not self.staged.all()
            and not self.schema.bytes
            and not self.tree.listing(self.uploads)
            and not self.tree.listing(self.writes)
            and not any(self.tree.exists(self.at(name)) for name in (SYNC_LOG, TASK_RECORD, _STAGE))
        )

    def go_to(self, tree: Tree) -> None:
        """Go on in another data directory; it is idle, and the caller holds its lock.

        Where it was there is no `data` any more, so that the next start finds it here.
        """
        before = self.tree
        self._be_in(tree)
        self.make()
        crash.point("folder.made")
        self.staged.open()
        SenderFolder(before, self.uuid, self.directory).leave()
        crash.point("folder.left")

    def leave(self) -> None:
        """Let it be no folder any more in which anything is received; nothing is under way in it.

        Only that tells it from one that stands: its directory may be the only one that can be seen.
        """
        for name in (self.uploads, self.at("data")):
            self.tree.remove_empty(name)

    def is_left(self) -> bool:
        """Whether its sender goes on in another data directory."""
        return not self.tree.exists(self.at("data"))

    def note_stuck(self, stuck: Mapping[str, str], tried: Iterable[str]) -> None:
        """Remember what a load could not place.

        Args:
            stuck: what was in the way, by path.
            tried: the paths of the load.
        """
        done = set(tried)
        kept = {
            path: why
            for path, why in self.stuck.items()
            if path not in done and self.staged.get(path) is not None
        }
        self.stuck = kept | dict(stuck)

    @contextmanager
    def beside(self, name: str) -> Iterator[None]:
        """Work on something beside the files: what is in its way is noted, and stops nothing else.

        Args:
            name: of it, in this folder.
        """
        try:
            yield
        except (OSError, TsferryError) as error:
            if not is_of_one_path(error):
                raise
            self.hindered[name] = obstacle(self.tree, self.at(f"{name}/"), error)
            log.warning("something is in the way: %s", self.hindered[name])
        else:
            if name in self.hindered and not (name in _ROOMS and self._misplaced(name)):
                del self.hindered[name]

    def _misplaced(self, name: str) -> str | None:
        return misplaced(self.tree, self.at(name).rstrip("/"), directory=name in _ROOMS)

    def misplaced(self) -> dict[str, str]:
        """What is not what it has to be in this folder, in words, by path; it changes nothing."""
        names = (*_ROOMS, *_KEPT, VERIFIED_LOG, _STAGE)
        found = {self.at(name).rstrip("/"): self._misplaced(name) for name in names}
        return {path: why for path, why in found.items() if why is not None}

    def make(self) -> None:
        """Make the folder and those in it; what is there stays."""
        for name in ("data", "data/.uploads"):
            self.tree.make_dirs(self.at(name))
        with self.beside("quarantine"):
            self.tree.make_dirs(self.quarantine)

    def sweep(self) -> None:
        """Remove what writes that were cut off have left: temporaries and half an upload."""
        listed = self.tree.listing(self.uploads)
        uploads = {name for name, found in listed if stat.S_ISREG(found.st_mode)}
        for name in sorted(uploads):
            stem, _, kind = name.rpartition(".")
            other = {"part": f"{stem}.upload", "upload": f"{stem}.part"}.get(kind)
            if other not in uploads:
                self.tree.unlink(f"{self.uploads}/{name}", sync=False)
        for below in ("", "/data"):
            self.tree.sweep_temporaries(f"{self.root}{below}", deep=False)
        for name in ("quarantine", "manifests"):
            with self.beside(name):
                self.tree.sweep_temporaries(self.at(name), deep=False)

    def forget_task(self) -> None:
        """Remove the files of a task that is over, sync.log first.

        Without sync.log the others are stale, so a crash in between leaves nothing that counts.
        Where that one cannot be removed, the task is as it was; the others may be left to the
        start of the next.
        """
        first, *others = _KEPT
        self.tree.unlink(self.at(first))
        if self.task is not None:
            self.task.close()
            self.task = None
        for name in others:
            if name == LOAD_LOG:  # for people; nothing rests on it
                with self.beside(name):
                    self.tree.unlink(self.at(name))
            else:
                self.tree.unlink(self.at(name))


class Folders:
    """All folders of all senders, by uuid.

    Attributes:
        hindered: what is in the way of one sender's, by uuid, as it was found last.
    """

    def __init__(self, trees: Sequence[Tree]) -> None:
        """Those in some data directories: all that were there at the start."""
        self._trees = trees
        self._known: dict[str, SenderFolder] = {}
        self._named: dict[str, str] = {}
        self._facts = KeptFacts()
        self._lock = threading.Lock()
        self._in_the_way: dict[str, str] = {}
        self._spare: list[SenderFolder] = []
        self.hindered: dict[str, str] = {}

    @property
    def problem(self) -> str | None:
        """What is in the way of those in a data directory, None if nothing is.

        Then nobody's can be told: a sender's may be behind it, with something under way.
        """
        return next(iter(self._in_the_way.values()), None)

    def is_usable(self, tree: Tree) -> bool:
        """Whether nothing is in the way of folders in a data directory."""
        return str(tree.path) not in self._in_the_way

    def scan(self, named: dict[str, str]) -> list[SenderFolder]:
        """Find the folders on the disk.

        Args:
            named: uuid -> name of the folder, as the engine has it; where two folders have one
                uuid the one is taken in which something is under way, else the one of this name,
                else the first.
        """
        self._named = named
        for tree in self._trees:
            try:
                tree.make_dirs(FOLDERS_ROOT)
                tree.listing(FOLDERS_ROOT)
            except (OSError, TsferryError) as error:
                if not is_of_one_path(error):
                    raise
                why = obstacle(tree, f"{FOLDERS_ROOT}/", error)
                self._in_the_way[str(tree.path)] = why
                log.error("no sender's folder can be used: %s", why)
            else:
                self._in_the_way.pop(str(tree.path), None)
        found = self.look()
        for folder in self._spare:  # of a move that was cut off: it is not to be taken for one
            folder.leave()
        self._spare = []
        return found

    def look(self) -> list[SenderFolder]:
        """Find the folders on the disk, and write nothing."""
        found: dict[str, list[SenderFolder]] = defaultdict(list)
        for tree in filter(self.is_usable, self._trees):
            for folder in self.in_directory(tree):
                if not folder.is_left():
                    found[folder.uuid].append(folder)
        for uuid, several in found.items():
            if uuid not in self._known:
                name = self._named.get(uuid)
                self._known[uuid] = max(several, key=lambda each: _standing(each, name))
                self._spare += [each for each in several if each is not self._known[uuid]]
        return self.all()

    def in_directory(self, tree: Tree) -> Iterator[SenderFolder]:
        """Every folder in a data directory, those too that were left for another one."""
        for name, found in tree.listing(FOLDERS_ROOT):
            uuid = uuid_of(name)
            if uuid is None or not stat.S_ISDIR(found.st_mode):
                log.warning("not a sender's folder, left alone", extra={"found": name})
                why = misplaced(tree, f"{FOLDERS_ROOT}/{name}", directory=True)
                if uuid is not None and why and self._named.get(uuid, name) == name:
                    self.hindered[uuid] = why
            else:
                yield SenderFolder(tree, uuid, name, self._facts)

    def misplaced(self) -> dict[str, str]:
        """What is in the way of folders, or in them, in words, by path; it changes nothing."""
        found: dict[str, str] = {}
        for tree in self._trees:
            why = misplaced(tree, FOLDERS_ROOT, directory=True)
            if why is not None:
                found[FOLDERS_ROOT] = why
                continue
            for name, _ in tree.listing(FOLDERS_ROOT):
                uuid = uuid_of(name)
                if uuid is not None:
                    found |= SenderFolder(tree, uuid, name).misplaced()
        return found

    def were_of(self, uuid: str) -> bool:
        """Whether a sender was known when the folders were looked for."""
        return uuid in self._named

    def left(self) -> Iterator[SenderFolder]:
        """Those whose senders go on in another data directory: what is kept is there still."""
        for tree in self._trees:
            for folder in self.in_directory(tree):
                active = self._known.get(folder.uuid)
                if active is not None and active.tree is not tree:
                    yield folder

    def find(self, uuid: str) -> SenderFolder | None:
        """The folder of a sender, if it has one."""
        return self._known.get(uuid)

    def all(self) -> list[SenderFolder]:
        """Every folder."""
        with self._lock:
            return list(self._known.values())

    def make(self, uuid: str, name: str, tree: Tree) -> SenderFolder:
        """The folder of a sender; if it has none yet, one of this name is made in a directory."""
        with self._lock:
            folder = self._known.get(uuid)
            if folder is None:
                folder = SenderFolder(tree, uuid, name, self._facts)
                folder.make()
                folder.staged.open()
                folder.recovered = True
                self._known[uuid] = folder
            return folder


def _standing(folder: SenderFolder, name: str | None) -> tuple[bool, ...]:
    """How much speaks for a folder, where there are several of one sender.

    Something is under way in one of them at most: it moves only when nothing is.
    """
    tree = folder.tree
    try:
        under_way = any(tree.exists(folder.at(each)) for each in (SYNC_LOG, TASK_RECORD, _STAGE))
        under_way |= any(True for _ in tree.files(folder.at("data")))
    except (OSError, TsferryError):  # something is in the way in it, which is no reason to leave it
        under_way = True
    return under_way, folder.directory == name
