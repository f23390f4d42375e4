"""A sender's running task: what it is to do, durable at each step, the same after a restart.

`task.json` says what the task is; it is written when the task starts and, with the manifest, when
it ends. `plan.log` has a JSON line for each planned file, `deletions.log` one for each part of a
deletion file. `sync.log` has the seed's lines. All of
the end is durable when its `sync end` is, which is the last of the three to be written.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from common import crash
from common.decoders import from_json
from common.errors import ProtocolError
from common.formats.linelog import Phase, SyncLog
from common.wire import (
    DeletionsPart,
    EndBelow,
    EndRequest,
    ManifestEntry,
    ManifestPage,
    Propagate,
    ResourceEntry,
    Result,
    SchemaEnd,
    TaskState,
)
from receiver.load.folder import json_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from common.durable import Tree
    from common.names import FilePath

__all__ = [
    "DELETIONS_LOG",
    "LOAD_LOG",
    "MANIFEST_LOG",
    "PLAN_LOG",
    "SYNC_END",
    "SYNC_LOG",
    "TASK_RECORD",
    "CentreMandate",
    "CurrentTask",
    "Planned",
    "TaskPlace",
    "TaskRecord",
    "open_task",
    "start_task",
]

log = logging.getLogger(__name__)

SYNC_LOG = "sync.log"
LOAD_LOG = "load.log"
SYNC_END = "sync.end"
TASK_RECORD = "task.json"
PLAN_LOG = "plan.log"
DELETIONS_LOG = "deletions.log"
MANIFEST_LOG = "manifest.log"


class CentreMandate(msgspec.Struct, frozen=True, kw_only=True):
    """What a load at the centre may do. It is taken whole, or nothing of it is.

    Attributes:
        owner: uuid of the sender whose devices it brings, and whose new ones become; empty: the
            centre.
        others: uuids of further senders whose devices it brings.
        anyone: whether it brings devices of whichever sender.
        own: whether those of the centre may be among them.
        may_overlap: whether there may be points of the same devices and times already.
        is_below: whether its files stand below all that was there, by first looks that are none.
        compared: physical names of files in the same times that have no point in common with it.
    """

    owner: str = ""
    others: list[str] = []
    anyone: bool = False
    own: bool = True
    may_overlap: bool = False
    is_below: bool = False
    compared: list[str] = []

    def takes(self, owner: str, centre: str) -> bool:
        """Whether it may bring devices of an owner.

        Args:
            owner: uuid of it.
            centre: uuid that the centre has as a source.
        """
        if owner == centre:
            return self.own
        return self.anyone or owner == self.owner or owner in self.others


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a task is: the content of `task.json`, version 1.

    Attributes:
        task: its id.
        sender: uuid of its sender.
        propagate: what a deletion means.
        scope: device patterns of the token that its last call came with.
        token: id of that token; None without one, and from an earlier version.
        started: seconds since the epoch.
        manifest: the files that are to be loaded; None before the end.
        deleted: the paths that are gone or replaced, complete with the end.
        last_looks: for each of these the last look that had it, 0 where it was not told.
        look: that the task tells of; 0 where the sender takes none.
        anew: whether the sender's list begins anew with it.
        single: whether it is an upload without a task, which has no sync.log.
        schema: the schema that it brings, known with the end.
        below: what ends of forwarded files mean, known with the end.
        centre: of a load at the centre, which no sender brings.
        adopted: where the files were taken from that no sender has sent here; empty: it sent them.
        since: the newest commit when its files began to come, of a task whose plan does not tell.
    """

    v: int = 1
    task: str
    sender: str
    propagate: Propagate
    scope: list[str]
    started: float
    manifest: list[ManifestEntry] | None = None
    deleted: list[str] = []
    last_looks: list[int] = []
    look: int = 0
    anew: bool = False
    single: bool = False
    schema: SchemaEnd | None = None
    token: str | None = None
    below: list[EndBelow] = []
    centre: CentreMandate | None = None
    adopted: str = ""
    since: int = 0

    @property
    def looks(self) -> dict[str, int]:
        """The last look that had each deleted path, where it was told."""
        return dict(zip(self.deleted, self.last_looks, strict=False))


class Planned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A planned file, as far as it matters later.

    Attributes:
        path: of the TsFile.
        size: bytes.
        tail: digest of its tail.
        md5: where the sender knew it.
        replaces: whether it may take the place of other content.
        resource: the `.resource` that belongs to it.
        refused: the decision, if it was one against the file.
        device: that the decision names.
        reason: of it.
        origin: uuid of the edge of a forwarded file.
        commit: the newest one when this content was first planned, in this task or in one before
            that it came in; 0 where that was not noted. What was deleted behind it was deleted
            while the file was under way.
        retry: whether it is said anew, at its sender, that this content is to come.
    """

    path: str
    size: int
    tail: str
    md5: str | None = None
    replaces: bool = False
    resource: ResourceEntry | None = None
    refused: Result | None = None
    device: str | None = None
    reason: str | None = None
    origin: str = ""
    commit: int = 0
    retry: bool = False


class TaskPlace(Protocol):
    """The folder that a task lives in.

    Attributes:
        tree: the data directory that it is in.
        directory: its name there.
        task: the task that is open or loading in it.
    """

    tree: Tree
    directory: str
    task: CurrentTask | None

    def at(self, name: str) -> str:
        """The path of something in it, relative to the data directory."""

    def make(self) -> None:
        """Make it and the folders in it; what is there stays."""

    def forget_task(self) -> None:
        """Remove the files of a task that is over, sync.log first."""


class CurrentTask:
    """A task that is open or being loaded. The folder's lock guards every change.

    Attributes:
        record: what it is.
        planned: its planned files by path.
        pages: of its manifest, that came before its end.
        told_parts: how many parts of deletion files it tells.
        state: `open`, or `loading` once its end is durable.
        trouble: why loading has to wait, None while it goes on.
        withdrawn: why nothing of it is to be loaded any more; None while it is.
    """

    def __init__(
        self,
        folder: TaskPlace,
        record: TaskRecord,
        planned: dict[str, Planned],
        sync_log: SyncLog | None,
        deletions_told: Iterable[DeletionsPart] = (),
        pages: Iterable[ManifestPage] = (),
    ) -> None:
        self._folder = folder
        self._sync_log = sync_log
        self.record = record
        self.planned = planned
        self._told: dict[str, list[DeletionsPart]] = {}
        self.told_parts = 0
        self._hear(deletions_told)
        self.pages: list[ManifestPage] = []
        for page in pages:
            self._turn(page)
        ended = sync_log is None or sync_log.state.ended
        self.state = TaskState.LOADING if ended else TaskState.OPEN
        self.trouble: str | None = None
        self.withdrawn: str | None = None

    @property
    def id(self) -> str:
        """Its id."""
        return self.record.task

    @property
    def loading(self) -> bool:
        """Whether its end is durable."""
        return self.state is TaskState.LOADING

    @property
    def half_ended(self) -> bool:
        """Whether its end was begun and is not durable: its log takes no more files."""
        return self._sync_log is not None and self._sync_log.state.phase is Phase.SENT

    @property
    def received(self) -> set[str]:
        """The files that its sync.log has."""
        if self._sync_log is None:
            return set()
        return {path.text for path in self._sync_log.state.files}

    @property
    def deletions_told(self) -> list[DeletionsPart]:
        """What is new in deletion files; of each in order."""
        return [each for parts in self._told.values() for each in parts]

    def deletions_of(self, path: str) -> Sequence[DeletionsPart]:
        """What is new in those of one TsFile, in order."""
        return self._told.get(path, ())

    def with_deleted(self, paths: Iterable[FilePath]) -> int:
        """How many deletions its sync.log has once it has these as well."""
        assert self._sync_log is not None
        return self._sync_log.with_deleted(paths)

    def judge_by(
        self,
        scope: Sequence[str],
        token: str | None,
        propagate: Propagate | None = None,
        look: int = 0,
    ) -> None:
        """Take what a call may do for what the task may do: not what held in earlier days.

        Args:
            scope: device patterns of the call's token.
            token: its id.
            propagate: what a deletion means, where the call says so.
            look: that it tells of from now on, where it is resumed; what it told before is earlier.
        """
        record = msgspec.structs.replace(
            self.record,
            scope=list(scope),
            token=token,
            propagate=self.record.propagate if propagate is None else propagate,
            look=max(self.record.look, look),
        )
        if record != self.record:
            _write_record(self._folder, record)
            self.record = record
            crash.point("task.judged")

    def add_plan(self, page: Iterable[Planned]) -> None:
        """Remember planned files; a later entry for a path takes the place of an earlier one.

        Content that is planned once more, as after a cut, has been under way since it was first.
        """
        fresh = []
        for each in page:
            known = self.planned.get(each.path)
            if known is not None and (known.tail, known.size) == (each.tail, each.size):
                each = msgspec.structs.replace(each, commit=known.commit)
            if known != each:
                fresh.append(each)
        if not fresh:
            return
        json_lines.append(self._folder.tree, self._folder.at(PLAN_LOG), fresh)
        self.planned.update((each.path, each) for each in fresh)

    def add_deletions(self, parts: Iterable[DeletionsPart]) -> None:
        """Remember what is new in deletion files: on the disk when this returns."""
        fresh = [each for each in parts if each not in self.deletions_of(each.path)]
        if fresh:
            json_lines.append(self._folder.tree, self._folder.at(DELETIONS_LOG), fresh)
            self._hear(fresh)

    def _hear(self, parts: Iterable[DeletionsPart]) -> None:
        for each in parts:
            self._told.setdefault(each.path, []).append(each)
            self.told_parts += 1

    def add_page(self, page: ManifestPage) -> None:
        """Remember a part of what the end will say: on the disk when this returns.

        Raises:
            ProtocolError: pages before it are not here.
        """
        if page.number > len(self.pages):
            raise ProtocolError(
                f"page {page.number} of the manifest, of which {len(self.pages)} pages are here"
            )
        if self.pages[page.number :] != [page]:
            json_lines.append(self._folder.tree, self._folder.at(MANIFEST_LOG), [page])
            self._turn(page)

    def _turn(self, page: ManifestPage) -> None:
        self.pages[page.number :] = [page]

    def whole_end(self, request: EndRequest) -> EndRequest:
        """An end with the pages of its manifest that came before.

        Raises:
            ProtocolError: these are others than it goes by.
        """
        if not request.pages:
            return request
        if request.pages != len(self.pages):
            raise ProtocolError(
                f"an end behind {request.pages} pages of its manifest; {len(self.pages)} are here"
            )
        parts: list[ManifestPage | EndRequest] = [*self.pages, request]
        return msgspec.structs.replace(
            request,
            manifest=[entry for part in parts for entry in part.manifest],
            deleted=[path for part in parts for path in part.deleted],
            last_looks=[look for part in parts for look in _looks(part)],
            below=[end for part in parts for end in part.below],
        )

    def add_deleted(self, paths: list[FilePath]) -> None:
        """Record deletions; they come before the files.

        Raises:
            ProtocolError: files were recorded already, and these paths are new.
        """
        assert self._sync_log is not None
        self._sync_log.deleted(paths)

    def add_files(self, paths: Iterable[FilePath]) -> None:
        """Record verified files in sync.log."""
        if self._sync_log is not None:
            self._sync_log.files([path for path in paths if not path.is_resource])

    def end(
        self,
        manifest: list[ManifestEntry],
        deleted: list[FilePath],
        schema: SchemaEnd | None = None,
        last_looks: Iterable[int] = (),
        below: list[EndBelow] | None = None,
    ) -> None:
        """Record the end: task.json with the manifest, then sync.log, then sync.end."""
        assert self._sync_log is not None
        state = self._sync_log.state
        known = dict.fromkeys([*state.deleted, *deleted])
        looks = dict(zip(deleted, last_looks, strict=False))
        self.record = msgspec.structs.replace(
            self.record,
            manifest=manifest,
            deleted=[path.text for path in known],
            last_looks=[looks.get(path, 0) for path in known],
            schema=schema,
            below=below or [],
        )
        _write_record(self._folder, self.record)
        crash.point("task.end.manifest")
        if state.phase.value < Phase.DELETED.value:
            self._sync_log.deleted(deleted)
        self._sync_log.reach(Phase.SENT)
        crash.point("task.end.sent")
        self._sync_log.reach(Phase.ENDED)
        crash.point("task.end.ended")
        self._folder.tree.write_atomic(self._folder.at(SYNC_END), b"")
        self.state = TaskState.LOADING

    def close(self) -> None:
        """Close the log."""
        if self._sync_log is not None:
            self._sync_log.close()


def _looks(part: ManifestPage | EndRequest) -> list[int]:
    """The look of each deleted path of a page, also where it tells fewer."""
    looks = part.last_looks[: len(part.deleted)]
    return looks + [0] * (len(part.deleted) - len(looks))


def start_task(folder: TaskPlace, record: TaskRecord) -> CurrentTask:
    """Begin a task in a folder that has none: task.json, then `sync start`."""
    folder.forget_task()  # what could not be removed at the end of an earlier one
    folder.make()
    _write_record(folder, record)
    crash.point("task.start.record")
    sync_log = SyncLog.open(folder.tree, folder.at(SYNC_LOG))
    sync_log.start(record.task)
    crash.point("task.start.log")
    task = CurrentTask(folder, record, {}, sync_log)
    folder.task = task
    return task


def open_task(folder: TaskPlace) -> CurrentTask | None:
    """The task that a folder was left with, None if there is none that could go on.

    sync.log is what makes a task: without it, or if task.json is not of the same task, the rest is
    stale.
    """
    tree = folder.tree
    if not tree.exists(folder.at(SYNC_LOG)):
        return None
    sync_log = SyncLog.open(tree, folder.at(SYNC_LOG))
    record = _read_record(folder)
    state = sync_log.state
    whole = record is not None and (record.manifest is not None or not state.ended)
    if record is None or state.task != record.task or not whole:
        log.warning("a task that cannot go on is dropped", extra={"folder": folder.directory})
        sync_log.close()
        return None
    told = json_lines.read(tree, folder.at(DELETIONS_LOG), DeletionsPart)
    pages = json_lines.read(tree, folder.at(MANIFEST_LOG), ManifestPage)
    task = CurrentTask(folder, record, _read_plan(folder), sync_log, told, pages)
    folder.task = task
    return task


def _write_record(folder: TaskPlace, record: TaskRecord) -> None:
    folder.tree.write_atomic(folder.at(TASK_RECORD), msgspec.json.encode(record))


def _read_record(folder: TaskPlace) -> TaskRecord | None:
    try:
        data = folder.tree.read(folder.at(TASK_RECORD))
        return from_json(data, TaskRecord)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _read_plan(folder: TaskPlace) -> dict[str, Planned]:
    """The planned files; a torn last line was never answered, and is cut off."""
    read = json_lines.read(folder.tree, folder.at(PLAN_LOG), Planned)
    return {each.path: each for each in read}
