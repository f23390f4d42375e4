"""Senders that have been here, and the way out for one that was taken for a clone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from common.errors import NotFoundError
from receiver.load.upkeep.verdicts import hold_of
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.operator.views import SenderView
from receiver.transfer import epochs
from receiver.transfer.schema_blocks import position_of

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import SenderRow
    from receiver.operator.directories import RunningReceiver

__all__ = ["accept_sender", "list_running_senders", "list_senders", "loaded_bad"]


def list_senders(engine: Engine) -> list[SenderView]:
    """Every sender that was ever in contact, as far as the engine tells."""
    with engine.reading() as state:
        refused = Counter(row.sender for row in state.quarantine.values())
        return [_view(state, row, refused[row.uuid]) for row in state.senders.values()]


def list_running_senders(there: RunningReceiver) -> list[SenderView]:
    """The same, with what each is doing."""
    return [_running(there, each) for each in list_senders(there.engine)]


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
        files=files,
        bytes=size,
        quarantined=refused + loaded_bad(state, row.uuid),
        verified=state.file_table.verified(row.uuid),
        schema=position_of(state.schema_positions.get(row.uuid)),
    )


def _running(there: RunningReceiver, view: SenderView) -> SenderView:
    folder = there.load.folders.find(view.uuid)
    task = folder.task if folder is not None else None
    count, partial = there.uploads.numbers(view.uuid)
    beat = there.checks.last_heartbeat(view.uuid)
    return msgspec.structs.replace(
        view,
        open_task=task.id if task is not None and not task.loading else None,
        loading=task.id if task is not None and task.loading else None,
        trouble=task.trouble if task is not None else None,
        staged_bytes=partial + (folder.staged.bytes if folder is not None else 0),
        uploads=count,
        heartbeat=beat[1] if beat is not None else None,
        heartbeat_at=beat[0] if beat is not None else None,
    )


def loaded_bad(state: State, sender: str) -> int:
    """Loaded files found bad; not those that an entry of the quarantine stands for already."""
    return sum(hold_of(state, row) is None for row in state.file_table.wanted(sender))


def accept_sender(engine: Engine, sender: str) -> None:
    """Let the next machine that comes under this uuid continue, whatever epoch it has.

    Raises:
        NotFoundError: there is no such sender.
    """
    with engine.reading() as state:
        row = state.senders.get(sender)
    if row is None:
        raise NotFoundError(f"sender {sender[:60]!a} is not known here")
    accepted = epochs.accept(row)
    op = records.EpochSet(sender, accepted, previous=None, task=None, confirmed=True, restored=True)
    engine.commit([op], [Guard("sender", sender, row.changed)])
