"""Files that their senders have no more: what of them exists nowhere else, and giving them up."""

from __future__ import annotations

from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from common.errors import ConflictError, NotFoundError, UsageError
from common.names import Kind
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.tables.file_tables.file_index import GroupKey
from receiver.metadata.state.tables.file_tables.retired import partition_of
from receiver.operator.directories import RunningReceiver
from receiver.operator.paging import every_row
from receiver.operator.views.retired_views import (
    RemainderView,
    RetiredPage,
    RetiredTotals,
    RetiredView,
)
from receiver.transfer.said_lists.listing import page_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.operator.directories import ReceiverDirectories
    from receiver.superseding.asking import FileProof

__all__ = [
    "GONE_STATES",
    "drop_retired",
    "list_retired",
    "merged_into",
    "retired_totals",
    "show_retired",
]

GONE_STATES = (str(FileState.RETIRED), str(FileState.SUPERSEDED))
"""What files that are gone at the edge can be asked for by."""


def list_retired(
    there: ReceiverDirectories,
    *,
    sender: str | None = None,
    state: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> RetiredPage:
    """A page of retired files, or of superseded ones, in order of their physical paths.

    Args:
        there: what to look at; only a server that runs knows what of them exists nowhere else.
        sender: only its files.
        state: one of `GONE_STATES`; the retired, if left out.
        after: the cursor of the page before.
        limit: files of the page; as many as the configuration allows, if left out.

    Raises:
        UsageError: there is no such state.
    """
    if state is not None and state not in GONE_STATES:
        raise UsageError(f"state: expected one of {', '.join(GONE_STATES)}")
    wanted = FileState(state or FileState.RETIRED)
    limit = page_limit(limit, there.config.limits.max_page_items)
    is_retired = wanted is FileState.RETIRED
    every = _retired(there.engine, after) if is_retired else _superseded(there, after)
    chosen = (row for row in every if sender in (None, row.sender))
    rows = list(islice(chosen, limit + 1))  # one more says whether there is a page after this
    page = rows[:limit]
    return RetiredPage(
        files=[_view(there, row, ranges=0) for row in page],
        next=page[-1].physical if len(rows) > limit else None,
    )


def _retired(engine: Engine, after: str | None) -> Iterator[FileRow]:
    """Retired files in order of their paths: what is in partitions without any is not looked at."""
    with engine.reading() as state:
        partitions = state.file_table.gone.where()
    directories = sorted(f"{kind}/{'/'.join(each)}/" for each in partitions for kind in Kind)
    for directory in directories:
        if after is not None and directory < after and not after.startswith(directory):
            continue
        with engine.reading() as state:
            rows = state.file_table.group(GroupKey.of(directory))
        found = [row for row in rows if row.state is FileState.RETIRED]
        for row in sorted(found, key=attrgetter("physical")):
            if after is None or row.physical > after:
                yield row


def _superseded(there: ReceiverDirectories, after: str | None) -> Iterator[FileRow]:
    return every_row(
        there.engine,
        lambda tables, behind, count: tables.file_table.among(FileState.SUPERSEDED, behind, count),
        lambda row: row.physical,
        after,
    )


def show_retired(there: ReceiverDirectories, physical: str) -> RetiredView:
    """All that is known of a retired or superseded file.

    Raises:
        NotFoundError: there is no such file.
    """
    return _view(there, _gone(there, physical), ranges=None)


def merged_into(state: State, physical: str) -> list[FileRow]:
    """What a merged file was made of and is still there: it would come back without that one."""
    maker = state.compacted_table.finals.maker(physical)
    inputs = () if maker is None else map(state.files.get, maker.inputs)
    return [
        each
        for each in inputs
        if each is not None and each.state is FileState.SUPERSEDED and physical in each.rests
    ]


def drop_retired(there: RunningReceiver, physical: str) -> None:
    """Give a retired or superseded file up, points and all; of a merged one, what is in it too.

    Raises:
        NotFoundError: there is no such file.
        ConflictError: something has just happened to it.
    """
    row = _gone(there, physical)
    with there.engine.reading() as state:
        rows = [row, *merged_into(state, physical)]
    there.engine.commit(
        [records.FileDeleted(each.physical, "operator") for each in rows],
        [Guard("file", each.physical, each.changed) for each in rows],
    )


def retired_totals(there: ReceiverDirectories) -> RetiredTotals:
    """How many retired files wait for a proof, and how fast it goes."""
    if isinstance(there, RunningReceiver):
        now = there.prover.progress()
        return RetiredTotals(
            waiting_files=now.waiting_files,
            waiting_bytes=now.waiting_bytes,
            unique_files=now.kept_files,
            unique_bytes=now.kept_bytes,
            superseded_files=now.superseded_files,
            superseded_bytes=now.superseded_bytes,
            files_per_second=round(now.files_per_second, 1),
            problem=now.problem,
        )
    with there.engine.reading() as state:
        gone = state.file_table.gone
        return RetiredTotals(
            waiting_files=gone.retired_files,
            waiting_bytes=gone.retired_bytes,
            superseded_files=gone.superseded_files,
            superseded_bytes=gone.superseded_bytes,
        )


def _gone(there: ReceiverDirectories, physical: str) -> FileRow:
    with there.engine.reading() as state:
        row = state.files.get(physical)
    if row is None:
        raise NotFoundError(f"there is no file {physical[:200]!a}")
    if row.state not in (FileState.RETIRED, FileState.SUPERSEDED):
        raise ConflictError(f"{physical} is {row.state}, neither retired nor superseded")
    return row


def _view(there: ReceiverDirectories, row: FileRow, *, ranges: int | None) -> RetiredView:
    """A row as it is shown, with so many ranges of its remainder at most."""
    found = _found(there, row)
    with there.engine.reading() as state:
        maker = state.compacted_table.finals.maker(row.physical)
        inside = state.compacted_table.inside([row]).get(row.physical, ())
    made_of = [] if maker is None else [path for _, path in maker.made_of]
    exclusive = found.exclusive if found is not None else ()
    return RetiredView(
        sender=row.sender,
        path=row.path,
        physical=row.physical,
        size=row.size,
        points=row.points,
        state=str(row.state),
        since=row.changed,
        since_at=there.engine.times.seconds(row.changed),
        judged=found is not None or row.state is FileState.SUPERSEDED,
        unreadable=found.unreadable or None if found is not None else None,
        unique_points=sum(each.points for each in exclusive),
        unique_series=len(exclusive),
        remainder=[
            RemainderView(each.device, each.measurement, each.first, each.last, each.points)
            for each in exclusive[:ranges]
        ],
        rests=list(row.rests),
        merged=len(made_of),
        made_of=made_of if ranges is None else [],
        inside=list(inside),
    )


def _found(there: ReceiverDirectories, row: FileRow) -> FileProof | None:
    if not isinstance(there, RunningReceiver):
        return None
    return there.prover.found(partition_of(row.physical), row.physical)
