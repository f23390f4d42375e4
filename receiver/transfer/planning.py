"""What to do with each file that a sender would send: decided before any byte of it travels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from common.errors import NameRefusedError
from common.names import FilePath
from common.wire import Action, PlanDecision, PlanEntry
from receiver.datadirs.disks import disk_room
from receiver.load.deciding.known_files.known_content import known_content, somebody_elses
from receiver.load.deciding.told_deletions.operators_deletions import (
    DELETED_HERE,
    deleted_by_operator,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from receiver.load.deciding.expiry import Expiry
    from receiver.load.deciding.told_deletions.outlived_deletions import OutlivedDeletions
    from receiver.load.folder.staged import Staged, Verified
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.scope import Scope

__all__ = ["Resumable", "Room", "Situation", "decide", "same_content"]

_MD5_DIGITS = 32

_Partition: TypeAlias = tuple[str, str, int]
"""As `FilePath.group` has it."""


@dataclass(frozen=True)
class Resumable:
    """A partial upload that fits an entry.

    Attributes:
        id: of it.
        offset: where it goes on.
        commit: see `UploadMeta`.
    """

    id: str
    offset: int
    commit: int = 0


@dataclass
class Room:
    """Space that is left for this sender while a page is decided; what is promised is taken off.

    Files of one partition may have to come together (what a compaction made of others, at a
    mirror all), and their sender sends none of them then while one is refused: so it is all of
    them that room has to be made for.

    Attributes:
        quota: bytes that it may have unloaded here, on top of what it has.
        free: bytes of the file system above what has to stay free.
        max_file: bytes of the largest file that is taken.
        over_quota: most bytes of a file that were refused for the quota.
    """

    quota: int
    free: int
    max_file: int
    over_quota: int = 0
    _asked: Counter[_Partition] = field(default_factory=Counter)
    _asked_room: Counter[_Partition] = field(default_factory=Counter)
    _short: set[_Partition] = field(default_factory=set)

    @property
    def over_free(self) -> int:
        """Most bytes of a partition that were to come, and not all had room."""
        return max((self._asked[each] for each in self._short), default=0)

    @property
    def over_room(self) -> int:
        """The same as the disk counts them."""
        return max((self._asked_room[each] for each in self._short), default=0)

    def refuse(self, group: _Partition, size: int, coming: Sequence[int]) -> str | None:
        """Why a file of `size` bytes is not taken now.

        Args:
            group: the partition that it is of.
            size: bytes of it.
            coming: bytes that are to come, of it and of what goes with it, each by itself.
        """
        rest = sum(coming)
        if size > self.max_file:
            return f"{size} bytes; files of at most {self.max_file} bytes are taken here"
        if rest > self.quota:
            self.over_quota = max(self.over_quota, rest)
            return (
                f"{rest} bytes are to come, and this sender may have {max(0, self.quota)} more "
                "waiting to be loaded; try later"
            )
        room = sum(map(disk_room, coming))
        self._asked[group] += rest
        self._asked_room[group] += room
        if room > self.free:
            self._short.add(group)
            return f"{rest} bytes are to come, and there is too little space left; try later"
        return None

    def promise(self, coming: Sequence[int]) -> None:
        """Count bytes that were asked for."""
        self.quota -= sum(coming)
        self.free -= sum(map(disk_room, coming))


@dataclass
class Situation:
    """All that a decision looks at."""

    state: State
    sender: str
    scope: Scope
    staged: Staged
    is_there: Callable[[Verified], bool]
    resumable: Callable[[PlanEntry], Resumable | None]
    room: Room
    reveal_owner: bool
    stands: Callable[[FileRow], bool]
    """Whether the bytes of a loaded file are on the disk."""
    outlived: OutlivedDeletions
    expiry: Expiry | None = None
    """None while nothing expires."""

    def may_know(self, row: FileRow) -> bool:
        """Whether the token covers all devices of a loaded file; else nothing is told of it."""
        return self.scope.first_outside(row.devices) is None


def same_content(row: FileRow | Verified, size: int, tail: str, md5: str | None) -> bool:
    """Whether a file that is here has the content that an entry describes."""
    return row.size == size and row.tail == tail and md5 in (None, row.md5)


def decide(entry: PlanEntry, here: Situation) -> PlanDecision:
    """Decide on one entry; a bad name is refused with its reason, and the others go on."""
    try:
        path = FilePath.parse(entry.path)
    except NameRefusedError as error:
        return _refused(entry, error.message)
    if path.is_resource:
        return _refused(entry, f"{path}: a resource is planned with its TsFile")
    if (wrong := _malformed(entry)) is not None:
        return _refused(entry, wrong)
    row = here.state.file_table.live(here.sender, path.text)
    same = _here_already(entry, path, row, here)
    if same is not None:
        return PlanDecision(
            path=entry.path,
            action=Action.ALREADY,
            md5=same.md5,
            resource=_is_changed(entry, same) and not _has_resource(entry, path, here),
        )
    return (
        _expired(entry, path, here)
        or _deleted(entry, path, here)
        or _against(entry, row, here)
        or _wanted(entry, path, here)
    )


def _expired(entry: PlanEntry, path: FilePath, here: Situation) -> PlanDecision | None:
    """A file that would be deleted as soon as it is loaded, as far as its sender describes it."""
    if here.expiry is None or not here.expiry.is_past_word(path.sg, entry.devices, entry.last_time):
        return None
    reason = f"all its points are past the TTL of {path.sg}"
    return PlanDecision(path=entry.path, action=Action.EXPIRED, reason=reason)


def _deleted(entry: PlanEntry, path: FilePath, here: Situation) -> PlanDecision | None:
    """Content that an operator deleted here, unless somebody says that it is to come again."""
    if entry.retry and not entry.answered:
        return None
    deleted = deleted_by_operator(
        here.state, here.sender, path.text, tail=entry.tail, size=entry.size, md5=entry.md5
    )
    if not deleted or (entry.retry and deleted <= entry.answered):
        return None
    return PlanDecision(
        path=entry.path,
        action=Action.EXPIRED,
        reason=DELETED_HERE,
        hold=True,
        commit=here.state.newest,
    )


def _here_already(
    entry: PlanEntry, path: FilePath, row: FileRow | None, here: Situation
) -> FileRow | None:
    """The loaded file that has this content, under any name, as long as its bytes stand."""

    def is_same(each: FileRow) -> bool:
        return _is_entry(each, entry) and here.may_know(each)

    if row is not None and not entry.replaces:
        return row if is_same(row) and here.stands(row) else None
    # What a task told as deleted beside it, in which it was not loaded, is not another one's.
    waiting = here.state.deletion_table.unloaded(here.sender, path.text)

    def is_deleted_from(each: FileRow) -> bool:
        if path.text in each.paths:
            return entry.deletes and each.held
        if waiting or (entry.deletes and each.held):
            return True
        return not entry.deletes and here.outlived.by(path.text, each)

    return known_content(
        here.state,
        here.sender,
        path.text,
        entry.tail,
        is_same,
        here.stands,
        entry.origin,
        is_deleted_from,
    )


def _is_entry(row: FileRow, entry: PlanEntry) -> bool:
    return same_content(row, entry.size, entry.tail, entry.md5)


def _malformed(entry: PlanEntry) -> str | None:
    if entry.size < 0:
        return f"{entry.path}: a size of {entry.size} bytes"
    if entry.md5 is not None and len(entry.md5) != _MD5_DIGITS:
        return f"{entry.path}: {entry.md5[:40]!a} is no MD5"
    return None


def _against(entry: PlanEntry, row: FileRow | None, here: Situation) -> PlanDecision | None:
    """A decision against the file, if there is a reason."""
    if row is not None and not entry.replaces and not _is_entry(row, entry):
        reason = "same path, other content"
        if here.may_know(row):
            reason += f": {row.size} bytes with MD5 {row.md5} are loaded under it"
        return PlanDecision(path=entry.path, action=Action.CONFLICT, reason=reason)
    if not entry.retry:
        for held in here.state.quarantine_table.at_path(here.sender, entry.path):
            if held.hold and (held.digest, held.size) == (entry.tail, entry.size):
                return PlanDecision(
                    path=entry.path, action=Action.REFUSED, reason=held.reason, hold=True
                )
    outside = here.scope.first_outside(entry.devices)
    if outside is not None:
        return PlanDecision(
            path=entry.path,
            action=Action.REFUSED,
            device=outside,
            reason=f"device {outside} is outside of the token's scope",
        )
    return _owned_by_another(entry, here)


def _owned_by_another(entry: PlanEntry, here: Situation) -> PlanDecision | None:
    for device in entry.devices:
        owner = here.state.owners.get(device)
        if owner is not None and owner.sender != here.sender:
            way_out = somebody_elses(
                here.state, owner.sender, entry.tail, lambda row: _is_entry(row, entry)
            )
            whose = f"sender {owner.sender}" if here.reveal_owner else "another sender"
            return PlanDecision(
                path=entry.path,
                action=Action.CONFLICT,
                device=device,
                reason=f"device {device} belongs to {whose}{f'; {way_out}' if way_out else ''}",
            )
    return None


def _wanted(entry: PlanEntry, path: FilePath, here: Situation) -> PlanDecision:
    """How the bytes come here, or that they are here, or that there is no room for them."""
    resource = entry.resource is not None and not _has_resource(entry, path, here)
    staged = here.staged.get(entry.path)
    if (
        staged is not None
        and same_content(staged, entry.size, entry.tail, entry.md5)
        and here.is_there(staged)
    ):
        return PlanDecision(path=entry.path, action=Action.HAVE, md5=staged.md5, resource=resource)
    found = here.resumable(entry)
    coming = [entry.size - (found.offset if found else 0)]
    if resource and entry.resource is not None:
        coming.append(entry.resource.size)
    why = here.room.refuse(path.group, entry.size, coming)
    if why is not None:
        return _refused(entry, why)
    here.room.promise(coming)
    if found is None:
        return PlanDecision(path=entry.path, action=Action.SEND, resource=resource)
    return PlanDecision(
        path=entry.path,
        action=Action.RESUME,
        upload=found.id,
        offset=found.offset,
        resource=resource,
    )


def _is_changed(entry: PlanEntry, row: FileRow) -> bool:
    """Whether a loaded file has another resource at its sender by now."""
    wanted, there = entry.resource, row.resource
    return wanted is not None and (
        there is None or (there.size, there.md5) != (wanted.size, wanted.md5)
    )


def _has_resource(entry: PlanEntry, path: FilePath, here: Situation) -> bool:
    assert entry.resource is not None
    staged = here.staged.get(path.resource.text)
    return (
        staged is not None
        and (staged.size, staged.md5) == (entry.resource.size, entry.resource.md5)
        and here.is_there(staged)
    )


def _refused(entry: PlanEntry, reason: str) -> PlanDecision:
    return PlanDecision(path=entry.path, action=Action.REFUSED, reason=reason)
