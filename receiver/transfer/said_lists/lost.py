"""What a sender tells of files that it has no more, and that are not here either."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from common.errors import TooLargeError
from common.wire import LostAnswer, LostFile, LostFiles
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed
from receiver.metadata.query.lost import lost_files, unknown_here
from receiver.transfer.intake import check_sender

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.wire import LostPage
    from receiver.config import ReceiverConfig
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.principal import Principal

__all__ = ["Losses", "lose_unknown", "lost_of"]

log = logging.getLogger(__name__)

_LONGEST_REASON = 500
_MOST_NAMED = 10_000


class Losses:
    """Answers `lost`."""

    def __init__(self, config: ReceiverConfig, engine: Engine) -> None:
        self._most = config.limits.max_page_items
        self._engine = engine

    def tell(self, who: Principal, sender: str, page: LostPage) -> LostAnswer:
        """Take a page; what no row knows is lost from now on, by a commit.

        Raises:
            TooLargeError: the page has too many files.
            RefusedCommitError: a file of it cannot be, or the sender is not known.
        """
        check_sender(who, sender)
        if len(page.files) > self._most:
            raise TooLargeError(f"{len(page.files)} files on a page; at most {self._most}")
        told = [
            records.FileLost(
                sender=sender,
                path=each.path,
                md5=each.md5,
                size=each.size,
                first=each.first_time,
                last=each.last_time,
                reason=each.reason[:_LONGEST_REASON],
            )
            for each in page.files
        ]
        lost = [op.path for op in lose_unknown(self._engine, told)]
        with self._engine.reading() as state:
            return LostAnswer(lost=lost, all=lost_of(state, sender))


def lost_of(state: State, sender: str) -> LostFiles | None:
    """What of a sender is lost and not acknowledged, as it is told; None for nothing."""
    rows = lost_files(state, sender)
    if not rows:
        return None
    named = [
        LostFile(
            path=row.path,
            md5=row.md5,
            size=row.size,
            first_time=row.first,
            last_time=row.last,
            reason=row.reason,
        )
        for row in rows[:_MOST_NAMED]
    ]
    firsts = [row.first for row in rows if row.first is not None]
    told_without = any(row.first is None and not row.physical for row in rows)
    since = None if told_without else min(firsts, default=None)
    return LostFiles(files=len(rows), since=since, named=named)


def lose_unknown(engine: Engine, told: Sequence[records.FileLost]) -> list[records.FileLost]:
    """Commit as lost what no row knows of files that one sender has no more; these.

    Told again it changes nothing.
    """
    while True:
        with engine.reading() as state:
            new = unknown_here(state, told)
        if not new:
            return []
        try:
            engine.commit(new, [Guard("lost", (op.sender, op.path, op.md5), 0) for op in new])
        except GuardFailed:
            continue
        log.error("files are lost", extra={"sender": new[0].sender, "files": len(new)})
        return new
