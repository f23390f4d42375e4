"""Senders that have been here, and the way out for one that was taken for a clone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from common.errors import ConflictError, NotFoundError
from receiver.load.upkeep.verdicts import hold_of
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.operator.directories import RunningReceiver
from receiver.operator.edges.lateness import presences, shared_labels
from receiver.operator.edges.owners import release_all
from receiver.operator.edges.tokens import revoke_token
from receiver.operator.stored.quarantine import drop_quarantined
from receiver.operator.views.sender_views import SenderView
from receiver.operator.views.wire import SenderRemoved, SendersAnswer
from receiver.transfer import epochs
from receiver.transfer.begun.schema_blocks import position_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import SenderRow
    from receiver.operator.directories import ReceiverDirectories
    from receiver.principal import Principal

__all__ = [
    "accept_all",
    "accept_sender",
    "all_senders",
    "list_running_senders",
    "list_senders",
    "loaded_bad",
    "remove_sender",
    "senders_named",
    "set_lateness",
]


def list_senders(engine: Engine) -> list[SenderView]:
    """Every sender that was ever in contact, as far as the engine tells."""
    with engine.reading() as state:
        refused = Counter(row.sender for row in state.quarantine.values())
        return [_view(state, row, refused[row.uuid]) for row in state.senders.values()]


def list_running_senders(there: ReceiverDirectories) -> list[SenderView]:
    """The same, with when each was heard, and what it is doing where a server runs."""
    found = _heard(there, list_senders(there.engine))
    if not isinstance(there, RunningReceiver):
        return found
    return [_running(there, each) for each in found]


def senders_named(there: ReceiverDirectories, uuids: Sequence[str]) -> list[SenderView]:
    """Some senders, with what each is doing; those that were never here are left out."""
    with there.engine.reading() as state:
        wanted = set(uuids)
        refused = Counter(row.sender for row in state.quarantine.values() if row.sender in wanted)
        rows = [row for each in uuids if (row := state.senders.get(each)) is not None]
        found = [_view(state, row, refused[row.uuid]) for row in rows]
    found = _heard(there, found)
    if not isinstance(there, RunningReceiver):
        return found
    return [_running(there, each) for each in found]


def all_senders(there: ReceiverDirectories) -> SendersAnswer:
    """The same, with the labels that several of them have."""
    views = list_running_senders(there)
    with there.engine.reading() as state:
        shared = shared_labels(state)
    return SendersAnswer(senders=views, shared_labels=shared)


def set_lateness(engine: Engine, sender: str, late_after: float | None) -> None:
    """After what silence a sender is late.

    Args:
        engine: of the receiver.
        sender: uuid.
        late_after: seconds, 0 for never; None: as the configuration has it.

    Raises:
        NotFoundError: there is no such sender.
    """
    with engine.reading() as state:
        row = _known(state.senders.get(sender), sender)
    if row.late_after != late_after:
        engine.commit([records.LatenessSet(sender, late_after)])


def _heard(there: ReceiverDirectories, views: list[SenderView]) -> list[SenderView]:
    with there.engine.reading() as state:
        rows = [state.senders[each.uuid] for each in views]
    here = {row.uuid: (row, presence) for row, presence in presences(there, rows)}
    found = []
    for each in views:
        row, presence = here[each.uuid]
        last = presence.last
        found.append(
            msgspec.structs.replace(
                each,
                version="" if last is None else last.version,
                heartbeat=None if last is None else last.beat,
                heartbeat_at=None if last is None else last.beat_at,
                failing_since=None if last is None else last.failing_since,
                clone_refused_at=None if last is None else last.clone_refused_at,
                heard_at=presence.heard_at,
                late_after=presence.late_after,
                late_after_own=row.late_after is not None,
                late=presence.is_late,
            )
        )
    return found


def _view(state: State, row: SenderRow, refused: int) -> SenderView:
    files, size = state.file_table.totals(row.uuid)
    return SenderView(
        uuid=row.uuid,
        label=row.label,
        directory=row.directory,
        epoch=epochs.number_of(row.epoch),
        first_seen=row.first_seen,
        last_task=row.last_task,
        last_commit=row.last_commit,
        last_commit_at=state.clock.times.seconds(row.last_commit) if row.last_commit else None,
        files=files,
        bytes=size,
        quarantined=refused + loaded_bad(state, row.uuid),
        removed=epochs.is_removed(row),
        verified=state.file_table.verified(row.uuid),
        schema=position_of(state.schema_positions.get(row.uuid)),
        listed=state.file_table.listed.of(row.uuid)[0],
    )


def _running(there: RunningReceiver, view: SenderView) -> SenderView:
    folder = there.load.folders.find(view.uuid)
    task = folder.task if folder is not None else None
    count, partial = there.uploads.numbers(view.uuid)
    return msgspec.structs.replace(
        view,
        open_task=task.id if task is not None and not task.loading else None,
        loading=task.id if task is not None and task.loading else None,
        trouble=task.trouble if task is not None else None,
        staged_bytes=partial + (folder.staged.bytes if folder is not None else 0),
        uploads=count,
    )


def loaded_bad(state: State, sender: str) -> int:
    """Loaded files found bad; not those that an entry of the quarantine stands for already."""
    return sum(hold_of(state, row) is None for row in state.file_table.wanted(sender))


def accept_sender(engine: Engine, sender: str, *, restored: bool = True) -> None:
    """Let the next machine that comes under this uuid continue, whatever epoch it has.

    Args:
        engine: of the receiver.
        sender: uuid.
        restored: its list begins anew with its next whole look.

    Raises:
        NotFoundError: there is no such sender.
    """
    with engine.reading() as state:
        row = state.senders.get(sender)
    row = _known(row, sender)
    accepted = epochs.accept(row)
    op = records.EpochSet(sender, accepted, None, None, confirmed=True, restored=restored)
    engine.commit([op], [Guard("sender", sender, row.changed)])


def accept_all(engine: Engine) -> list[str]:
    """Let every sender go on, whatever its epoch: a receiver was restored; not those removed."""
    with engine.reading() as state:
        found = [row.uuid for row in state.senders.values() if not epochs.is_removed(row)]
    for sender in found:
        accept_sender(engine, sender, restored=False)
    return found


def remove_sender(there: RunningReceiver, who: Principal, sender: str) -> SenderRemoved:
    """Have a sender come no more: its tokens, devices and refused files go, its data stays.

    What was loaded is retired, and visible until it is proved to be elsewhere. Cut off anywhere, it
    can be said once more.

    Raises:
        NotFoundError: there is no such sender.
        ConflictError: a task of it is being loaded.
    """
    engine = there.engine
    with engine.reading() as state:
        row = _known(state.senders.get(sender), sender)
        tokens = [
            each.id
            for each in state.tokens.values()
            if each.sender == sender or each.owners == (sender,)
        ]
    if not epochs.is_removed(row):  # first: from here on no call of it is taken
        made = records.EpochSet(sender, epochs.remove(row), None, None, confirmed=True)
        engine.commit([made], [Guard("sender", sender, row.changed)])
    _drop_task(there, sender)
    for each in tokens:
        revoke_token(engine, each)
    moved = release_all(engine, who, sender)
    with engine.reading() as state:
        refused = [each for each in state.quarantine.values() if each.sender == sender]
    for entry in refused:
        drop_quarantined(there, sender, entry.path, entry.digest)
    with engine.reading() as state:
        files, size = state.file_table.totals(sender)
    return SenderRemoved(
        tokens=len(tokens),
        devices=moved.devices,
        retired=moved.retired,
        quarantined=len(refused),
        files=files,
        bytes=size,
    )


def _drop_task(there: RunningReceiver, sender: str) -> None:
    folder = there.load.folders.find(sender)
    if folder is None:
        return
    with folder.lock:
        if folder.task is None:
            return
        if folder.task.loading:
            raise ConflictError(f"a task of {sender} is being loaded; say it once more, later")
        folder.forget_task()


def _known(row: SenderRow | None, sender: str) -> SenderRow:
    if row is None:
        raise NotFoundError(f"sender {sender[:60]!a} is not known here")
    return row
