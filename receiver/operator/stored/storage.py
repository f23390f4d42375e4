"""How far the copies in the object store are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from common.errors import TooLargeError
from common.wire import FailedFetch, FetchAnswer
from receiver.load.placing import tree_of
from receiver.operator.directories import RunningReceiver
from receiver.operator.views.status_views import StorageView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.operator.directories import ReceiverDirectories

__all__ = [
    "fetch_files",
    "files_out_of_reach",
    "running_storage",
    "storage_concerns",
    "storage_in_catalogue",
]

_MOST_AT_ONCE = 100
_PATIENCE = 20.0
"""Seconds that a call for files takes, at most: what is coming then is asked for again."""
_NOWHERE = "it is in no data directory, and neither an object store nor nodes are configured"


def storage_in_catalogue(there: ReceiverDirectories) -> StorageView:
    """What the catalogue knows, without a server."""
    with there.engine.reading() as state:
        table = state.uploaded_table
        rows = [row for row in state.files.values() if table.lacks(row)]
        oldest = min((row.created for row in rows), default=0)
        return StorageView(
            url=there.config.storage.url,
            encryption=there.config.storage.encryption,
            newest=state.newest,
            uploaded_files=len(table.rows),
            uploaded_bytes=table.bytes,
            ended_files=len(table.ended),
            waiting_files=len(rows),
            waiting_bytes=sum(row.size for row in rows if row.physical not in table.rows),
            upload=_said(state),
            oldest_waiting=oldest,
            oldest_waiting_at=_moment(there.engine, oldest),
        )


def running_storage(there: ReceiverDirectories) -> StorageView:
    """How far a server is with its copies."""
    if not isinstance(there, RunningReceiver):
        return storage_in_catalogue(there)
    if there.storage is None:
        return msgspec.structs.replace(
            storage_in_catalogue(there), running=True, problem=_out_of_reach(there)
        )
    found = there.storage.progress()
    with there.engine.reading() as state:
        said = _said(state)
    view = StorageView(
        url=there.config.storage.url,
        encryption=there.config.storage.encryption,
        running=True,
        newest=there.engine.newest_commit,
        incarnation=found.incarnation,
        uploaded_files=found.files.uploaded_files,
        uploaded_bytes=found.files.uploaded_bytes,
        waiting_files=found.files.waiting_files,
        waiting_bytes=found.files.waiting_bytes,
        kept_files=found.files.kept_files,
        kept_bytes=found.files.kept_bytes,
        unreadable_files=found.files.unreadable_files,
        upload=said,
        oldest_waiting=found.files.oldest,
        oldest_waiting_at=_moment(there.engine, found.files.oldest),
        shipped=found.shipped,
        shipped_at=_moment(there.engine, found.shipped),
        behind=found.behind,
        behind_at=_moment(there.engine, found.behind),
        requests=dict(found.requests),
        costs=there.config.storage.prices.of(found.requests),
        currency=there.config.storage.prices.currency,
        ended_files=found.ended,
        staying=found.staying,
        problem=None if found.trouble is None else found.trouble.text,
        trouble=None if found.trouble is None else found.trouble.slug,
        fenced=found.is_fenced,
        cached_files=found.cached_files,
        cached_bytes=found.cached_bytes,
        capacity=there.config.storage.capacity,
        tree=found.tree,
        tree_at=_moment(there.engine, found.tree),
        asked_files=found.asked,
        fetched_files=found.fetched,
    )
    if found.incarnation:
        return view
    known = storage_in_catalogue(there)  # the store was not reached yet: nobody counts what waits
    return msgspec.structs.replace(
        view,
        waiting_files=known.waiting_files,
        waiting_bytes=known.waiting_bytes,
        oldest_waiting=known.oldest_waiting,
        oldest_waiting_at=known.oldest_waiting_at,
    )


def fetch_files(
    there: RunningReceiver, physicals: Sequence[str], ahead: Sequence[str] = ()
) -> FetchAnswer:
    """Have files in the data directories that may be in the object store, or at nodes, only.

    Args:
        there: the receiver.
        physicals: of the files.
        ahead: of those that are going to be asked for next.

    Raises:
        TooLargeError: there are too many.
    """
    if max(len(physicals), len(ahead)) > _MOST_AT_ONCE:
        many = max(len(physicals), len(ahead))
        raise TooLargeError(f"{many} files, at most {_MOST_AT_ONCE} are taken")
    with there.engine.reading() as state:
        rows = {each: state.files.get(each) for each in physicals}
        guessed = [row for each in ahead if (row := state.files.get(each)) is not None]
    known = [row for row in rows.values() if row is not None]
    failed = [(each, "there is no such file") for each, row in rows.items() if row is None]
    if there.disk_room is None:
        here = [row.physical for row in known if tree_of(there.trees, row) is not None]
        failed += [(row.physical, _NOWHERE) for row in known if row.physical not in here]
        coming: list[str] = []
    else:
        found = there.disk_room.fetch(known, _PATIENCE)
        there.disk_room.come_ahead(guessed)
        here, coming = found.here, found.coming
        failed += found.failed
    return FetchAnswer(
        here=here,
        coming=coming,
        failed=[FailedFetch(path=path, reason=why) for path, why in failed],
    )


def storage_concerns(there: RunningReceiver) -> list[str]:
    """What holds up the copies of a server, if anything does."""
    if there.storage is None:
        found = _out_of_reach(there)
        return [] if found is None else [found]
    trouble = there.storage.trouble()
    if trouble is None:
        return []
    return [f"copies into the object store are held up, {trouble.kind}: {trouble.text}"]


def files_out_of_reach(engine: Engine, disks: Disks) -> int:
    """Files that readers see and an object store alone has; for a receiver that has none."""
    with engine.reading() as state:
        table = state.uploaded_table
        known = (state.files.get(physical) for physical in table.rows)
        rows = [row for row in known if row is not None and row.visible and table.parts(row).file]
    if not rows or disks.away():
        return 0  # what lies in a directory that is away is told of as such
    return sum(tree_of(disks.trees, row) is None for row in rows)


def _out_of_reach(there: RunningReceiver) -> str | None:
    if not there.out_of_reach:
        return None
    files = "1 file is" if there.out_of_reach == 1 else f"{there.out_of_reach} files are"
    return (
        f"{files} in an object store only, and none is configured (storage.url): nobody can read "
        "them here"
    )


def _said(state: State) -> dict[str, int]:
    return {path: row.after for path, row in sorted(state.upload_times.rows.items())}


def _moment(engine: Engine, ts: int) -> float | None:
    return engine.times.seconds(ts) if ts else None
