"""Blocks of a sender's schema log: checked, staged, and named by the end of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import ProtocolError, TooLargeError
from common.formats.schemawire import LONGEST_IDENTITY
from common.wire import SchemaAnswer, SchemaFailure, SchemaPosition

if TYPE_CHECKING:
    from common.wire import SchemaEnd
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.metadata.state.table_rows import SchemaPositionRow
    from receiver.transfer.intake import Intake

__all__ = ["check_end", "position_of", "receive_block"]

_LONGEST_MARK = 1024


def receive_block(
    intake: Intake,
    folder: SenderFolder,
    task: str,
    body: bytes,
    *,
    limit: int,
    partial_bytes: int,
) -> SchemaAnswer:
    """Take a block in; what is answered is on the disk.

    Args:
        intake: knows whether there is room.
        folder: of the sender.
        task: that the block comes with; it has to be open.
        body: the block.
        limit: bytes of a block, at most.
        partial_bytes: of the sender's uploads.

    Raises:
        GoneError: the task is not open.
        TooLargeError, NoSpaceError: it does not fit.
        OffsetError: it does not begin where those before it end.
        ProtocolError, DigestError: it is no block, or a damaged one.
    """
    if len(body) > limit:
        raise TooLargeError(f"a block of {len(body)} bytes, limits.max_chunk_bytes is {limit}")
    with folder.lock:
        intake.open_task(folder, task)
        intake.check_room(folder, len(body), partial_bytes + folder.schema.bytes)
        return SchemaAnswer(size=folder.schema.add(body))


def check_end(end: SchemaEnd | None) -> None:
    """See that the end of a task speaks of a schema in a way that can be recorded.

    Raises:
        ProtocolError: it does not.
    """
    if end is None:
        return
    if not 0 < len(end.identity) <= LONGEST_IDENTITY or len(end.mark) > _LONGEST_MARK:
        raise ProtocolError("schema: identity or mark is too long, or there is no identity")
    if end.news > end.offset:
        raise ProtocolError(f"schema: news from {end.news} on, behind the end {end.offset}")


def position_of(row: SchemaPositionRow | None) -> SchemaPosition | None:
    """What a sender is told of its schema."""
    if row is None:
        return None
    return SchemaPosition(
        identity=row.identity,
        offset=row.offset,
        mark=row.mark,
        applied=row.applied,
        unapplied=row.unapplied,
        failed=[SchemaFailure(record=record, reason=why) for record, why in row.failed],
        commit=row.changed,
    )
