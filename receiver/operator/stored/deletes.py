"""Deletes that wait for an operator: shown, let through, dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import NotFoundError
from receiver.load.deciding.told_deletions.uncovered_files import let_through, uncovered_files
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed
from receiver.metadata.state.table_rows import FileState
from receiver.operator.views.file_views import HeldDeletesView

if TYPE_CHECKING:
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.deletion_rows import HeldDeletesRow
    from receiver.metadata.state.state import State

__all__ = ["allow_held_deletes", "drop_held_deletes", "list_held_deletes"]


def list_held_deletes(engine: Engine) -> list[HeldDeletesView]:
    """The lists that wait, the oldest first."""
    with engine.reading() as state:
        return [_view(state, row) for row in state.held_deletes.waiting()]


def allow_held_deletes(engine: Engine, digest: str) -> int:
    """Let a list through; the commit.

    Records of deletion files hide from it on. Files are deleted when their sender tells them as
    gone once more, in the one look that does so first: what it has again by then is not told. What
    left its list already, because other content has its path, is deleted at once.

    Raises:
        NotFoundError: no such list waits.
    """
    return _settle(engine, digest, "allow")


def drop_held_deletes(engine: Engine, digest: str) -> int:
    """Refuse a list for good; the commit.

    Records of deletion files never hide. Files are retired, and stay visible, when they are told.

    Raises:
        NotFoundError: no such list waits.
    """
    return _settle(engine, digest, "drop")


def _settle(engine: Engine, digest: str, verdict: records.DeletesVerdict) -> int:
    while True:
        with engine.reading() as state:
            row = state.held_deletes.rows.get(digest)
            if row is None or row.verdict is not None:
                raise NotFoundError(f"no list of deletes {digest[:60]!a} waits")
            found = [state.files.get(each) for each in row.files]
            parts = list(let_through(state.deletion_table, digest)) if row.records else []
            uncovered = uncovered_files(state, parts) if verdict == "allow" else []
        off_the_list = [
            each
            for each in found
            if each is not None and each.state is FileState.RETIRED and not row.records
        ]
        ops: list[records.Op] = [records.DeletesSettled(digest, verdict)]
        if verdict == "allow":
            ops += [records.FileDeleted(each.physical, "gone") for each in off_the_list]
            ops += [records.FileRevived(each.physical) for each in uncovered]
        guards = [Guard("held_deletes", digest, row.changed)]
        guards += [
            Guard("file", each.physical, each.changed) for each in (*off_the_list, *uncovered)
        ]
        try:
            return engine.commit(ops, guards)
        except GuardFailed:
            continue


def _view(state: State, row: HeldDeletesRow) -> HeldDeletesView:
    found = [state.files.get(each) for each in row.files]
    files = [each for each in found if each is not None and each.state is not FileState.DELETED]
    return HeldDeletesView(
        digest=row.digest,
        sender=row.sender,
        group=row.group,
        records=row.records,
        reason=row.reason,
        files=[each.path for each in files],
        bytes=sum(each.size for each in files),
        points=sum(each.points for each in files),
        since=row.created,
        since_at=state.clock.times.seconds(row.created),
    )
