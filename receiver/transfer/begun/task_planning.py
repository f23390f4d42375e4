"""A page of a plan against what is here: what to do with each file, and since when it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.wire import Action, PlanDecision, Result
from receiver.datadirs.disks import whole_in
from receiver.load.deciding.told_deletions.outlived_deletions import OutlivedDeletions
from receiver.load.folder.current_task import Planned
from receiver.metadata.state.placed_files import parts_elsewhere
from receiver.scope import Scope
from receiver.transfer.planning import Room, Situation, decide

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.wire import (
        PlanEntry,
    )
    from receiver.config import ReceiverConfig
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.principal import Principal
    from receiver.transfer.receiving.uploads import Uploads

__all__ = ["TaskPlanning", "planned"]

_REFUSED = {
    Action.CONFLICT: Result.CONFLICT,
    Action.REFUSED: Result.REFUSED,
    Action.EXPIRED: Result.EXPIRED,
}


class TaskPlanning:
    """Decides about files; the caller holds the lock of the sender's folder."""

    def __init__(
        self, config: ReceiverConfig, engine: Engine, load: LoadService, uploads: Uploads
    ) -> None:
        self._config = config
        self._engine = engine
        self._load = load
        self._uploads = uploads

    def decisions(
        self,
        who: Principal,
        folder: SenderFolder,
        entries: Iterable[PlanEntry],
    ) -> list[PlanDecision]:
        """What to do with each of some files; what there is no room for is noted as a shortage."""
        limits = self._config.limits
        _, partial_bytes = self._uploads.numbers(folder.uuid)
        room = Room(
            quota=limits.max_unloaded_bytes - folder.staged.bytes - partial_bytes,
            free=self._load.space.room(folder),
            max_file=limits.max_file_bytes,
        )
        moment = self._load.ttl.moment()
        standing = self._load.disks.standing()
        with self._engine.reading() as state:
            here = Situation(
                state=state,
                sender=folder.uuid,
                scope=Scope(who.scope),
                staged=folder.staged,
                is_there=lambda each: each.is_still(folder.tree.stat(folder.staged.at(each.path))),
                resumable=lambda entry: self._uploads.resumable(who, folder, entry),
                room=room,
                reveal_owner=self._config.auth.reveal_owner,
                stands=lambda row: whole_in(standing, row, parts_elsewhere(state, row)),
                outlived=OutlivedDeletions(state, folder.uuid),
                expiry=self._load.ttl.expiry(state, moment),
            )
            decisions = [decide(entry, here) for entry in entries]
        self._load.space.note_shortage(
            folder.uuid, free=room.over_free, room=room.over_room, quota=room.over_quota
        )
        return decisions

    def began(
        self, who: Principal, folder: SenderFolder, entry: PlanEntry, decision: PlanDecision
    ) -> int:
        """The newest commit when an earlier task began to bring this content; 0 where none did."""
        if entry.retry:  # it is said anew that it is to come
            return 0
        if decision.action is Action.HAVE:
            staged = folder.staged.get(entry.path)
            return 0 if staged is None else staged.commit
        found = self._uploads.resumable(who, folder, entry)
        return 0 if found is None else found.commit


def planned(entry: PlanEntry, decision: PlanDecision, commit: int) -> Planned:
    """A decision as the task keeps it."""
    return Planned(
        path=entry.path,
        size=entry.size,
        tail=entry.tail,
        md5=entry.md5,
        replaces=entry.replaces,
        resource=entry.resource,
        refused=_REFUSED.get(decision.action),
        device=decision.device,
        reason=decision.reason,
        origin=entry.origin,
        commit=commit,
        retry=entry.retry,
    )
