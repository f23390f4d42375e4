"""Devices and the senders that they take data from."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from common.errors import ConflictError, NotFoundError, UsageError
from receiver.load.deciding.told_deletions.inherited_deletions import (
    inherited,
    notes_of,
    predecessors,
)
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from receiver.operator.edges.lateness import NEVER_LATE
from receiver.operator.paging import every_row
from receiver.operator.views.token_views import OwnersPage, OwnerView
from receiver.operator.views.wire import OwnersMoved
from receiver.scope import Scope
from receiver.transfer.said_lists.listing import page_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow, OwnerRow
    from receiver.operator.directories import ReceiverDirectories
    from receiver.principal import Principal

__all__ = ["adopt_sender", "list_owners", "owned_by_pattern", "release_all", "set_owner"]

T = TypeVar("T")

_DEVICES = 10_000
"""Devices of one commit."""
_FILES = 10_000
"""Files of one commit."""


def list_owners(
    there: ReceiverDirectories,
    *,
    sender: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> OwnersPage:
    """A page of devices that have an owner, of one sender if told so, in order of their names."""
    limit = page_limit(limit, there.config.limits.max_page_items)
    every = every_row(
        there.engine,
        lambda state, behind, count: state.owner_table.page(behind, count),
        lambda each: each[0],
        after,
    )
    wanted = (each for each in every if sender is None or each[1].sender == sender)
    found = list(islice(wanted, limit + 1))  # one more says whether there is a page after this one
    page = found[:limit]
    with there.engine.reading() as state:
        known = [state.senders.get(row.sender) for _, row in page]
        seconds = state.clock.times.seconds
    return OwnersPage(
        owners=[
            OwnerView(
                device=device,
                sender=row.sender,
                label="" if owner is None else owner.label,
                since=row.since,
                since_at=seconds(row.since),
            )
            for (device, row), owner in zip(page, known, strict=True)
        ],
        next=page[-1][0] if len(found) > limit else None,
    )


def set_owner(engine: Engine, who: Principal, pattern: str, sender: str | None) -> OwnersMoved:
    """Devices belong to `sender` from now on, or to whoever comes first.

    What the predecessor listed of devices that it has lost all of ends with a transfer: it is
    retired, and whatever the new owner lists stands above it.

    Args:
        engine: of the receiver.
        who: asks.
        pattern: of devices, as `receiver.scope` has it; a plain name means this one device.
        sender: the new owner; None frees them.

    Raises:
        NotFoundError: no such device has an owner, or there is no such sender.
    """
    if sender is not None:
        _need_sender(engine, sender)
    with engine.reading() as state:
        owners = dict(state.owners)
    devices = owned_by_pattern(owners, pattern)
    return _move(engine, who, {each: owners[each] for each in devices}, sender)


def owned_by_pattern(owners: Mapping[str, OwnerRow], pattern: str) -> list[str]:
    """The devices of these that a pattern means; a plain name means the one device.

    Raises:
        NotFoundError: there is none.
        UsageError: it is no pattern of devices.
    """
    if pattern in owners:
        return [pattern]
    scope = Scope.asked([pattern])
    devices = [each for each in owners if scope.covers(each)]
    if not devices:
        raise NotFoundError(f"nobody owns the device {pattern[:200]!a}")
    return devices


def adopt_sender(engine: Engine, who: Principal, old: str, new: str) -> OwnersMoved:
    """All devices of one sender belong to another one from now on, and all its files end.

    Raises:
        NotFoundError: one of them is not known.
        UsageError: they are the same.
    """
    _need_sender(engine, old)
    _need_sender(engine, new)
    if old == new:
        raise UsageError(f"sender {old} cannot adopt itself")
    with engine.reading() as state:
        owners = {device: row for device, row in state.owners.items() if row.sender == old}
        awaited = state.senders[old].late_after != NEVER_LATE
    moved = _move(engine, who, owners, new, adopted=old)
    if awaited:  # the box that was replaced comes no more
        engine.commit([records.LatenessSet(old, NEVER_LATE)])
    return moved


def release_all(engine: Engine, who: Principal, sender: str) -> OwnersMoved:
    """Free all devices of a sender, and end all its files."""
    with engine.reading() as state:
        owners = {device: row for device, row in state.owners.items() if row.sender == sender}
    moved = _move(engine, who, owners, None)
    retired, commit = _end_files(engine, frozenset(), "", sender, moved.commit)
    return OwnersMoved(commit=commit, devices=moved.devices, retired=retired)


def _move(
    engine: Engine,
    who: Principal,
    owners: Mapping[str, OwnerRow],
    sender: str | None,
    *,
    adopted: str | None = None,
) -> OwnersMoved:
    by = f"token {who.token_id}" if who.token_id else "an operator"
    reason = f"{'released' if sender is None else 'transferred'} by {by}"
    changing = {device: row for device, row in owners.items() if row.sender != sender}
    commit = engine.newest_commit
    for part in _batched(changing.items(), _DEVICES):
        ops = [records.OwnerSet(device, sender, reason) for device, _ in part]
        guards = [Guard("owner", device, row.changed) for device, row in part]
        commit = engine.commit(ops, guards)
    retired = 0
    if sender is not None:
        retired, commit = _end_files(engine, owners.keys(), sender, adopted, commit)
        commit = _inherit(engine, sender, commit)
    return OwnersMoved(commit=commit, devices=len(changing), retired=retired)


def _end_files(
    engine: Engine, devices: AbstractSet[str], heir: str, adopted: str | None, commit: int
) -> tuple[int, int]:
    """Retire what senders listed of devices that they own none of any more.

    They were seen last before the transfer, as far as is known. The files decide and not who owned
    the devices until now: an earlier transfer may have been cut off before it ended them.
    """
    with engine.reading() as state:
        ended = [
            (row, _lost(state, row) or commit)
            for row in state.files.values()
            if row.sender != heir
            and row.held
            and (
                row.sender == adopted
                or (not devices.isdisjoint(row.devices) and _has_lost_all(state, row))
            )
        ]
    for part in _batched(ended, _FILES):
        try:
            commit = engine.commit(
                [records.FileRetired(row.physical, last) for row, last in part],
                [Guard("file", row.physical, row.changed) for row, _ in part],
            )
        except (GuardFailed, RefusedCommitError) as error:
            raise ConflictError(
                "files changed while they were ended; the devices have their new owner, say it "
                "once more"
            ) from error
    return len(ended), commit


def _inherit(engine: Engine, heir: str, commit: int) -> int:
    """Note for those whom a sender took over from what it has told of deletions meanwhile."""
    with engine.reading() as state:
        told = (row for row in state.deletion_table.of_sender(heir) if not row.heir)
        notes = list(notes_of(told))
        before = predecessors(state, heir) if notes else []
        ops = [op for each in before for op in inherited(state, each, notes, {})]
    for part in _batched(ops, _FILES):
        commit = engine.commit(part)
    return commit


def _has_lost_all(state: State, row: FileRow) -> bool:
    """Whether a file has devices, and its sender owns none of them."""
    owners = [state.owners.get(device) for device in row.devices]
    return bool(owners) and all(each is None or each.sender != row.sender for each in owners)


def _lost(state: State, row: FileRow) -> int:
    """The commit since which all devices of a file have the owners that they have; 0 for none."""
    owners = (state.owners.get(device) for device in row.devices)
    return max((each.changed for each in owners if each is not None), default=0)


def _need_sender(engine: Engine, sender: str) -> None:
    with engine.reading() as state:
        known = sender in state.senders
    if not known:
        raise NotFoundError(f"sender {sender[:60]!a} is not known here")


def _batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    several = iter(items)
    while part := list(islice(several, size)):
        yield part
