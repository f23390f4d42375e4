"""Which files of a sender nobody needs to remember any more: it keeps a line of what it freed."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from common.errors import UsageError
from common.text_numbers import whole_number
from common.wire import SettledAnswer, SettledFile
from receiver.metadata.state.table_rows import FileState
from receiver.scope import Scope
from receiver.transfer.intake import check_sender
from receiver.transfer.said_lists.listing import page_limit

if TYPE_CHECKING:
    from receiver.config import ReceiverConfig
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.principal import Principal

__all__ = ["Settlements"]


class Settlements:
    """Answers `settled`. What it costs goes by what happened since, not by what there is."""

    def __init__(self, config: ReceiverConfig, engine: Engine) -> None:
        self._most = config.limits.max_page_items
        self._engine = engine

    def page(
        self, who: Principal, sender: str, after: int, cursor: str | None, limit: int | None
    ) -> SettledAnswer:
        """Files that were settled behind a commit, in the order of the commits.

        Those with a device outside of the token's scope are not told, and stay remembered.

        Args:
            who: asks.
            sender: whose files.
            after: a commit.
            cursor: `next` of the page before.
            limit: files of the page; as many as the configuration allows, if None.

        Raises:
            UsageError: the cursor is none of ours.
        """
        check_sender(who, sender)
        limit = page_limit(limit, self._most)
        begin, scope = None if cursor is None else _parsed(cursor), Scope(who.scope)
        with self._engine.reading() as state:
            newest = state.newest
            found = sorted(_settled(state, sender, after if begin is None else begin[0] - 1, scope))
        if begin is not None:
            found = found[bisect_right(found, begin) :]
        page = found[:limit]
        return SettledAnswer(
            engine=self._engine.uuid,
            commit=newest,
            oldest=min(newest, self._engine.oldest_answerable),
            files=[SettledFile(path=path, md5=md5, commit=commit) for commit, md5, path in page],
            next="/".join(map(str, page[-1])) if len(found) > limit else None,
        )


def _settled(state: State, sender: str, after: int, scope: Scope) -> set[tuple[int, str, str]]:
    """(commit, MD5, path)."""
    table = state.file_table
    found = {
        (commit, md5, path)
        for rows in (
            ((row.superseded, row) for row in table.superseded_since(after)),
            ((row.deleted, row) for row in table.deleted_since(after)),
        )
        for commit, row in rows
        if row.sender == sender and scope.first_outside(row.devices) is None
        for md5, path in _contents(state, row)
        if not _is_merged_in(state, sender, path, md5)
    }
    lost = state.lost_table.rows.values()
    found |= {
        (row.acknowledged, row.md5, row.path)
        for row in lost
        if row.sender == sender and row.acknowledged > after
    }
    return found


def _contents(state: State, row: FileRow) -> list[tuple[str, str]]:
    """(MD5, path) of what a row is of, at its sender: of a merged file what it is made of.

    But for what is here again, as it gave way to it.
    """
    maker = state.compacted_table.finals.maker(row.physical)
    if maker is None:
        return [(row.md5, path) for path in row.paths]
    inputs = (state.files.get(each) for each in maker.inputs)
    here = {
        (each.md5, path)
        for each in inputs
        if each is not None and _is_here(each)
        for path in each.paths
    }
    return [each for each in maker.made_of if each not in here]


def _is_merged_in(state: State, sender: str, path: str, md5: str) -> bool:
    """Whether a merged file that is made of one is read, or bad: its sender alone knows what of."""
    finals = state.compacted_table.finals.with_leaf(sender, path, md5)
    rows = (state.files.get(each) for row in finals for each in row.became)
    return any(row is not None and _is_here(row) for row in rows)


def _is_here(row: FileRow) -> bool:
    return row.visible or row.state is FileState.QUARANTINED


def _parsed(cursor: str) -> tuple[int, str, str]:
    commit, _, rest = cursor.partition("/")
    md5, _, path = rest.partition("/")
    number = whole_number(commit)
    if number is None or not path:
        raise UsageError(f"cursor {cursor[:100]!a}: expected `next` of the page before")
    return number, md5, path
