"""Writes of jobs: files that come from many tasks at once, and become one load at the centre.

A write has a folder of its own beside the uploads of the centre's source, with the files of each
attempt of each task under names of that attempt. Nothing of it counts before its commit, which
names the files that are meant and hands them to the load at the centre: what another attempt has
left is none of them. With its end, whatever that is, the folder goes; a write that nobody goes on
with goes as a stale upload does.
"""

from __future__ import annotations

import logging
import stat
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from common import crash
from common.config.shared_rules import PER_MILLISECOND
from common.decoders import from_json
from common.errors import (
    BusyError,
    DigestError,
    ForbiddenError,
    GoneError,
    OffsetError,
    TsferryError,
    UsageError,
)
from common.names import FilePath, Kind, is_task_id
from common.wire import check_block
from receiver.metadata.model.paths import IllegalPathError, device_nodes, format_path
from receiver.operator.centre.centre_files import CentreFile
from receiver.operator.centre.load_owners import LoadRights
from receiver.operator.views.load_wire import CentreLoadRequest
from receiver.operator.views.write_wire import KnownDevice, WriteOpened, WriteRequest
from receiver.scope import Scope
from receiver.transfer.intake import Intake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from receiver.config import ReceiverConfig
    from receiver.load.folder.current_task import CentreMandate
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.operator.centre.centre_loading import CentreLoads
    from receiver.operator.views.load_wire import CentreLoadAnswer
    from receiver.operator.views.write_wire import StagedPart

__all__ = ["CentreWrites"]

log = logging.getLogger(__name__)

_RECORD: Final = "write.json"
_MOST_DEVICES: Final = 10_000
"""That may be asked for at once."""


class _OpenWrite(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a write as long as it is open.

    Attributes:
        request: that it was opened by.
        rights: of the writer that opened it; None of an operator.
        commit: the newest one then; 0 where that was not noted.
    """

    request: WriteRequest
    rights: LoadRights | None = None
    commit: int = 0


class CentreWrites:
    """The writes that are open; any thread may call.

    A call says by which rights it is made: those of a writer, or None of an operator. A write is
    that of the token that opened it, and of operators.
    """

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        load: LoadService,
        centre: CentreLoads,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._engine = engine
        self._load = load
        self._centre = centre
        self._intake = Intake(config, engine, load, clock=clock)
        self._beginning = threading.Lock()
        """Held by a commit, or the same said again, until its load has begun."""
        self._counting = threading.Lock()
        self._held: int | None = None
        """Bytes of all open writes; None: they are to be counted first."""
        load.reaper.chores.append(self.expire)

    def open(self, task: str, request: WriteRequest, rights: LoadRights | None) -> WriteOpened:
        """Begin a write; one that is open already goes on.

        Raises:
            GoneError: it is over.
            NotFoundError, UsageError: there is no such owner or policy, or the id is none.
            ForbiddenError: it is for somebody, or does something, that is not for that writer.
        """
        owner = self._centre.mandate(_load_of(task, request), rights).owner
        if self._centre.is_done(task):
            raise GoneError(f"write {task} is over")
        folder = self._load.centre_folder()
        record = f"{_place(folder, task)}/{_RECORD}"
        if folder.tree.exists(record):
            self._opened(task, rights)
        else:
            folder.tree.make_dirs(_place(folder, task))
            opened = _OpenWrite(request=request, rights=rights, commit=self._engine.newest_commit)
            folder.tree.write_atomic(record, msgspec.json.encode(opened))
        config = self._config
        return WriteOpened(
            owner=owner or self._centre.source,
            interval=config.partition_interval_ms * PER_MILLISECOND[config.time_unit],
            time_unit=config.time_unit,
            block=config.limits.max_chunk_bytes,
        )

    def known(
        self, task: str, devices: Sequence[str], rights: LoadRights | None
    ) -> list[KnownDevice]:
        """What is known of devices, and why rows of them would be refused.

        Raises:
            GoneError: the write is over.
            UsageError: too many, or a name is none.
            ForbiddenError: it is another writer's.
        """
        _, made = self._opened(task, rights)
        if len(devices) > _MOST_DEVICES:
            raise UsageError(f"{len(devices)} devices, at most {_MOST_DEVICES} at once")
        mandate = self._centre.mandate(_load_of(task, made.request), made.rights)
        scope = Scope(() if made.rights is None else made.rights.scope)
        with self._engine.reading() as state:
            look = _Look(state, self._centre.source, mandate, scope, made.rights)
            return [look.at(each) for each in devices]

    def put(
        self,
        task: str,
        attempt: str,
        number: int,
        offset: int,
        content: memoryview,
        xxh3: str,
        rights: LoadRights | None,
    ) -> None:
        """Write a block of a file; the same once more changes nothing.

        Args:
            task: id of the write.
            attempt: id of the attempt whose file it is.
            number: of the file in it.
            offset: of the block in the file.
            content: its bytes.
            xxh3: of them, as they were sent.
            rights: of a writer.

        Raises:
            GoneError: the write is over.
            ForbiddenError: it is another writer's.
            OffsetError: bytes before these are missing.
            DigestError: they are not what was sent.
            NoSpaceError, TooLargeError: there is no room.
        """
        if not is_task_id(attempt):
            raise UsageError(f"{attempt[:60]!a} is no id of an attempt (32 hex digits)")
        folder, _ = self._opened(task, rights)
        if self._centre.has_begun(task):  # what is judged stays as it is
            raise GoneError(f"write {task} is being committed, or over")
        rel = _part(folder, task, attempt, number)
        check_block(content, xxh3, rel)
        end = offset + len(content)
        self._intake.check_size(FilePath.parse(f"{Kind.SEQUENCE}/root/0/0/x.tsfile"), end)
        held = self._bytes_held(folder)
        self._intake.check_room(folder, len(content), held, is_asked=True)
        try:
            file = folder.tree.create(rel) if offset == 0 else folder.tree.open_write(rel)
        except FileExistsError:
            file = folder.tree.open_write(rel)  # the answer to its first block was lost
        except FileNotFoundError as error:
            self._opened(task, rights)
            raise OffsetError(f"nothing of {rel} is here, and byte {offset} came") from error
        with file:
            found = folder.tree.stat(rel)
            size = 0 if found is None else found.st_size
            if offset > size:
                raise OffsetError(f"{size} bytes of {rel} are here, and byte {offset} came")
            file.write(content, at=offset)
            file.begin_sync()
        self._count(max(0, end - size))

    def commit(self, task: str, parts: Sequence[StagedPart], rights: LoadRights | None) -> None:
        """Begin to load the files of a write; asked for once more, it goes on.

        Raises:
            ForbiddenError: it is another writer's.
            GoneError: the write is over otherwise, or a file is not there.
            BusyError: another load is under way.
            DigestError: a file has not all of its bytes.
        """
        with self._beginning:
            if self._centre.is_done(task) or self._centre.has_begun(task):
                return
            folder, made = self._opened(task, rights)
            if not parts:
                raise UsageError("a write without files is dropped, and not committed")
            files = [_file(folder, task, each) for each in sorted(parts, key=_order)]
            load = _load_of(task, made.request)
            self._centre.begin(
                load,
                files,
                rights=made.rights,
                since=made.commit,
                ended=lambda: self._remove(folder, task),
            )

    def answer(self, task: str, wait: float) -> CentreLoadAnswer:
        """What became of the load of a write; see `CentreLoads.answer`."""
        return self._centre.answer(task, wait)

    def drop(self, task: str, rights: LoadRights | None) -> None:
        """End a write with nothing; one that is over stays as it is.

        Raises:
            BusyError: it is being committed.
            ForbiddenError: it is another writer's.
        """
        if not is_task_id(task):
            raise UsageError(f"{task[:60]!a} is no id of a write (32 hex digits)")
        if self._centre.is_under_way(task):
            raise BusyError(f"write {task} is being committed", retry_after=1)
        try:
            folder, _ = self._opened(task, rights)
        except GoneError:
            return
        self._remove(folder, task)

    def expire(self, now: float) -> None:
        """Drop the writes that nobody goes on with."""
        folder = self._load.folders.find(self._centre.source)
        if folder is None:
            return
        for name, found in folder.tree.listing(folder.writes):
            if not stat.S_ISDIR(found.st_mode) or self._centre.is_under_way(name):
                continue
            files = folder.tree.listing(f"{folder.writes}/{name}")
            last = max((each.st_mtime for _, each in files), default=found.st_mtime)
            if last < now - self._config.limits.upload_expiry:
                log.warning("a write that nobody has ended is dropped", extra={"task": name})
                self._remove(folder, name)

    # -- on the disk -------------------------------------------------------------------------

    def _opened(self, task: str, rights: LoadRights | None) -> tuple[SenderFolder, _OpenWrite]:
        if not is_task_id(task):
            raise UsageError(f"{task[:60]!a} is no id of a write (32 hex digits)")
        folder = self._load.folders.find(self._centre.source)
        if folder is None:
            raise self._not_open(task)
        try:
            content = folder.tree.read(f"{_place(folder, task)}/{_RECORD}")
        except FileNotFoundError:
            raise self._not_open(task) from None
        made = from_json(content, _OpenWrite)
        if rights is not None and (made.rights is None or made.rights.token != rights.token):
            raise ForbiddenError(f"write {task} is not of this token")
        return folder, made

    def _not_open(self, task: str) -> GoneError:
        """Whoever has written rows is to know whether they are there, after a fail-over too."""
        centre = self._centre
        if centre.is_done(task) or centre.has_begun(task) or centre.is_visible(task):
            return GoneError(f"write {task} is over")
        return GoneError(
            f"write {task} is not open here, and nothing of it is loaded or visible: it was "
            "dropped, it expired, or its files are on the disks of a receiver whose place this one "
            "has taken; run the write again"
        )

    def _remove(self, folder: SenderFolder, task: str) -> None:
        """Remove all of a write, its record first: from then on nothing more comes."""
        place = _place(folder, task)
        try:
            folder.tree.unlink(f"{place}/{_RECORD}")
            crash.point("centre.write_closed")
            for name, _ in folder.tree.listing(place):
                folder.tree.unlink(f"{place}/{name}", sync=False)
            folder.tree.remove_empty(place)
        except (TsferryError, OSError) as error:
            log.warning("what a write has left is swept later", extra={"error": str(error)})
        with self._counting:
            self._held = None

    def _bytes_held(self, folder: SenderFolder) -> int:
        with self._counting:
            if self._held is None:
                self._held = sum(
                    each.st_size
                    for name, found in folder.tree.listing(folder.writes)
                    if stat.S_ISDIR(found.st_mode)
                    for _, each in folder.tree.listing(f"{folder.writes}/{name}")
                )
            return self._held

    def _count(self, size: int) -> None:
        with self._counting:
            if self._held is not None:
                self._held += size


def _load_of(task: str, request: WriteRequest) -> CentreLoadRequest:
    return CentreLoadRequest(
        task=task,
        paths=[],
        owner=request.owner,
        others=request.others,
        on_duplicate=request.on_duplicate,
    )


def _place(folder: SenderFolder, task: str) -> str:
    return f"{folder.writes}/{task}"


def _part(folder: SenderFolder, task: str, attempt: str, number: int) -> str:
    return f"{_place(folder, task)}/{attempt}-{number}.part"


def _order(part: StagedPart) -> tuple[str, int]:
    """Those of a directory together; in it they stay in the order of their tasks."""
    return part.group, part.partition


def _file(folder: SenderFolder, task: str, part: StagedPart) -> CentreFile:
    """A file of a write, as a load takes it.

    Raises:
        GoneError: it is not there.
        DigestError: it is shorter, or longer.
        NameRefusedError: there can be no such storage group.
    """
    rel = _part(folder, task, part.attempt, part.number)
    found = folder.tree.stat(rel)
    if found is None:
        raise GoneError(f"{rel} is not here")
    if found.st_size != part.size:
        raise DigestError(f"{rel}: {found.st_size} bytes came of {part.size}")
    name = f"{part.attempt[:8]}-{part.number}.tsfile"
    path = FilePath.parse(f"{Kind.SEQUENCE}/{part.group}/0/{part.partition}/{name}")
    return CentreFile(folder.tree.path / rel, path, staged=rel, md5=part.md5)


class _Look(NamedTuple):
    """What a write is told of devices.

    Attributes:
        state: committed.
        centre: uuid of the centre as a source.
        mandate: of the write.
        scope: of its token.
        rights: of its writer; None of an operator.
    """

    state: State
    centre: str
    mandate: CentreMandate
    scope: Scope
    rights: LoadRights | None

    def at(self, device: str) -> KnownDevice:
        """A device; nothing but why, of one whose rows would be refused."""
        try:
            nodes = device_nodes(device)
        except IllegalPathError as error:
            raise UsageError(error.message) from error
        if not self.scope.covers(device):
            return KnownDevice(refused="outside of the token's scope")
        state = self.state
        owner = state.owners.get(device)
        if owner is not None and not self.mandate.takes(owner.sender, self.centre):
            return KnownDevice(refused=self._whose(owner.sender))
        group = state.schema.groups.of(nodes)
        row = state.schema.devices.find(nodes)
        return KnownDevice(
            group=None if group is None or device.startswith("/") else format_path(group),
            owner="" if owner is None else owner.sender,
            aligned=None if row is None else row.aligned,
            types={} if row is None else _types(state, nodes),
        )

    def _whose(self, owner: str) -> str:
        if self.rights is not None:  # who has a writer's token is not told whose devices there are
            return "the device belongs to another sender"
        sender = self.state.senders.get(owner)
        label = "" if sender is None else sender.label
        named = f"{label} ({owner})" if label else owner
        return f"the device belongs to {named}: expected option as = '{owner}', or rows without it"


def _types(state: State, device: tuple[str, ...]) -> dict[str, int]:
    series, names = state.schema.series, state.schema.devices.series_names(device)
    rows = {name: series.find((*device, name), alias=False) for name in names}
    return {name: series.type_of(row) for name, row in rows.items() if row >= 0}
