"""Files that are or were loaded, as operators see them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from common.errors import UsageError
from receiver.load.placing import tree_of
from receiver.load.upkeep.undeleting import undelete
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.centre_source import is_centre
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from receiver.metadata.state.placed_files import parts_elsewhere
from receiver.metadata.state.table_rows import FileState
from receiver.operator.paging import every_row
from receiver.operator.stored.retired import merged_into
from receiver.operator.views.file_views import FilesPage, FileView
from receiver.operator.views.wire import DeleteAnswer, FailedDelete, FailedUndelete, UndeleteAnswer
from receiver.transfer.said_lists.listing import page_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.model.records import DeletionReason
    from receiver.metadata.state.table_rows import FileRow
    from receiver.operator.directories import ReceiverDirectories, RunningReceiver

__all__ = ["EXPIRED", "FILE_STATES", "delete_files", "list_files", "undelete_files", "view_of_file"]

EXPIRED = "expired"
"""Why the TTL has deleted a file."""
FILE_STATES = (*(str(each) for each in FileState), EXPIRED)
"""What files can be asked for by; the last are those of the deleted that the TTL has deleted."""


def list_files(
    there: ReceiverDirectories,
    *,
    sender: str | None = None,
    state: str | None = None,
    unverified: bool = False,
    after: str | None = None,
    limit: int | None = None,
) -> FilesPage:
    """A page of files in order of their physical paths.

    Args:
        there: what to look at.
        sender: only its files.
        state: only files in this one of `FILE_STATES`; those that are visible, if left out.
        unverified: only those that no verification has proved.
        after: the cursor of the page before.
        limit: files of the page; as many as the configuration allows, if left out.

    Raises:
        UsageError: there is no such state.
    """
    if state is not None and state not in FILE_STATES:
        raise UsageError(f"state: expected one of {', '.join(FILE_STATES)}")
    limit = page_limit(limit, there.config.limits.max_page_items)
    order = FileState.LIVE if state is None else _state(state)

    def is_wanted(row: FileRow) -> bool:
        return (
            (sender is None or row.sender == sender)
            and (state is None or row.state is order)
            and (state != EXPIRED or row.reason == EXPIRED)
            and not (unverified and row.verified)
        )

    every = every_row(
        there.engine,
        lambda tables, behind, count: tables.file_table.among(order, behind, count),
        lambda row: row.physical,
        after,
    )
    # One more says whether there is a page after this one.
    rows = list(islice(filter(is_wanted, every), limit + 1))
    page = rows[:limit]
    return FilesPage(
        files=[view_of_file(row, there) for row in page],
        next=page[-1].physical if len(rows) > limit else None,
    )


def undelete_files(there: RunningReceiver, physicals: Sequence[str]) -> UndeleteAnswer:
    """Make deleted files visible again whose bytes stand, as retired ones."""
    with there.engine.reading() as state:
        found = {each: state.files.get(each) for each in physicals}
    rows = [row for row in found.values() if row is not None and row.state is FileState.DELETED]
    known = {row.physical for row in rows}
    done = undelete(there.engine, there.disks, rows)
    failed = [(each, "it is no deleted file") for each in found if each not in known]
    return UndeleteAnswer(
        back=done.back,
        failed=[
            FailedUndelete(physical=physical, reason=reason)
            for physical, reason in [*done.failed, *failed]
        ],
    )


def delete_files(
    there: RunningReceiver, physicals: Sequence[str], *, everywhere: bool
) -> DeleteAnswer:
    """Delete files that their senders have no more; with `everywhere` at the centres above, too.

    What a sender has would come again, so it is not deleted here; what was loaded at the centre
    nobody has. With what was merged goes what it was made of.
    """
    reason: DeletionReason = "everywhere" if everywhere else "operator"
    deleted: list[str] = []
    failed: list[FailedDelete] = []
    for physical in dict.fromkeys(physicals):
        with there.engine.reading() as state:
            row = state.files.get(physical)
            within = merged_into(state, physical)
        why = _why_stays(row)
        if row is not None and why is None:
            rows = [row, *within]
            try:
                there.engine.commit(
                    [records.FileDeleted(each.physical, reason) for each in rows],
                    [Guard("file", each.physical, each.changed) for each in rows],
                )
            except (GuardFailed, RefusedCommitError) as error:
                why = error.message
        if why is None:
            deleted.append(physical)
        else:
            failed.append(FailedDelete(physical=physical, reason=why))
    return DeleteAnswer(deleted=deleted, failed=failed)


def _why_stays(row: FileRow | None) -> str | None:
    if row is None:
        return "there is no such file"
    if row.held and not is_centre(row.sender):
        return "its sender has it: it goes there first"
    return "it is deleted already" if row.state is FileState.DELETED else None


def _state(name: str) -> FileState:
    return FileState.DELETED if name == EXPIRED else FileState(name)


def view_of_file(row: FileRow, there: ReceiverDirectories) -> FileView:
    """A row as it is shown."""
    times = there.engine.times
    tree = tree_of(there.trees, row)
    with there.engine.reading() as state:
        stored = parts_elsewhere(state, row).file
        adopted = state.adoption_table.is_adopted(row)
        inside = state.compacted_table.inside([row]).get(row.physical, ())
    return FileView(
        sender=row.sender,
        path=row.path,
        physical=row.physical,
        data_dir=None if tree is None else str(tree.path),
        size=row.size,
        md5=row.md5,
        state=str(row.state),
        reason=row.reason,
        task=row.task,
        created=row.created,
        deleted=row.deleted,
        first_time=row.first,
        last_time=row.last,
        devices=len(row.devices),
        series=row.series,
        points=row.points,
        resource=row.resource is not None,
        verified=row.verified,
        created_at=times.seconds(row.created),
        verified_at=times.seconds(row.verified) if row.verified else None,
        stored=stored,
        adopted=adopted,
        inside=list(inside),
    )
