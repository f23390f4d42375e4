"""Files that neither side has any more: shown, and acknowledged by an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import NotFoundError
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed
from receiver.metadata.query.lost import lost_files
from receiver.operator.views.retired_views import LostView

if TYPE_CHECKING:
    from collections.abc import Collection

    from receiver.metadata.engine import Engine
    from receiver.metadata.model.true_times import TrueTimes
    from receiver.metadata.state.table_rows import LostRow

__all__ = ["acknowledge_lost", "list_lost"]

_MOST = 10_000
"""Files of one commit."""


def list_lost(engine: Engine, sender: str | None = None) -> list[LostView]:
    """Lost files that nobody has acknowledged, of a sender or of all."""
    with engine.reading() as state:
        return [_view(row, state.clock.times) for row in lost_files(state, sender)]


def acknowledge_lost(engine: Engine, sender: str, paths: Collection[str]) -> list[LostView]:
    """Say that an operator knows of lost files; those that are acknowledged by this.

    Args:
        engine: that has them.
        sender: whose.
        paths: of them at the sender; empty for all.

    Raises:
        NotFoundError: a path is not that of a lost file, or nothing is lost.
    """
    done: list[LostView] = []
    while True:
        with engine.reading() as state:
            there = lost_files(state, sender)
        if not done:
            _check(sender, paths, there)
        due = [row for row in there if not paths or row.path in paths][:_MOST]
        if not due:
            return done
        ops = [records.LossAcknowledged(*row.key, row.physical) for row in due]
        guards = [Guard("file", row.physical, row.changed) for row in due if row.physical]
        guards += [Guard("lost", row.key, row.changed) for row in due if not row.physical]
        try:
            engine.commit(ops, guards)
        except GuardFailed:
            continue
        done += [_view(row, engine.times) for row in due]


def _check(sender: str, paths: Collection[str], there: list[LostRow]) -> None:
    known = {row.path for row in there}
    missing = [path for path in paths if path not in known]
    if missing:
        raise NotFoundError(f"{missing[0][:200]!a} of sender {sender[:60]} is not lost")
    if not there:
        raise NotFoundError(f"nothing of sender {sender[:60]!a} is lost")


def _view(row: LostRow, times: TrueTimes) -> LostView:
    return LostView(
        sender=row.sender,
        path=row.path,
        md5=row.md5,
        size=row.size,
        first=row.first,
        last=row.last,
        reason=row.reason,
        physical=row.physical or None,
        since=row.changed,
        since_at=times.seconds(row.changed),
    )
