"""What a sender tells of files that it has no more, and that are not here either."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from common.errors import TooLargeError
from common.wire import LostAnswer
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed
from receiver.metadata.query.lost import unknown_here
from receiver.transfer.intake import check_sender

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.wire import LostPage
    from receiver.config import ReceiverConfig
    from receiver.metadata.engine import Engine
    from receiver.principal import Principal

__all__ = ["LostFiles", "lose_unknown"]

log = logging.getLogger(__name__)

_LONGEST_REASON = 500


class LostFiles:
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
        return LostAnswer(lost=[op.path for op in lose_unknown(self._engine, told)])


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
