"""Both sides compare: whether a sender's list is what is listed here, and what was let go here."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from common.errors import TooLargeError
from common.listed import ListedSum
from common.wire import EndedAnswer, EndedHere, ListedAnswer
from receiver.load.deciding.told_deletions.operators_deletions import (
    is_last_of_content,
    is_operators,
    is_told_by_merge,
)
from receiver.metadata.query.given_back import came_back, ended_with_transfer, is_anothers
from receiver.metadata.state.table_rows import FileState
from receiver.scope import Scope
from receiver.transfer.intake import check_sender

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.wire import ListedPage, ListedRequest
    from receiver.config import ReceiverConfig
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow, LetGoRow
    from receiver.principal import Principal

__all__ = ["ListComparison", "is_awaited"]

_MOST_ENDED: Final = 10_000
_OPERATOR: Final = "operator"
_EXPIRED: Final = "expired"
_TRANSFERRED: Final = "its devices are another sender's now"


class ListComparison:
    """Answers `listed`: the comparison of two sums, and what came of what the sums differ in."""

    def __init__(self, config: ReceiverConfig, engine: Engine) -> None:
        self._most = config.limits.max_page_items
        self._engine = engine

    def compare(self, who: Principal, sender: str, request: ListedRequest) -> ListedAnswer:
        """Whether the list is what is listed here; if not, what was let go here since a commit.

        What a token's scope does not cover need not be on the list, for its inventory lacks it. A
        sender that a device came back to since then has what counted no more on its list, and it
        may have left the disk here: it has to compare all. So has one of which deleted files were
        called back: what counted no more on its list may be there, and counts again.
        """
        check_sender(who, sender)
        scope = Scope(who.scope)
        with self._engine.reading() as state:
            told = request.files, request.digest
            agrees = state.file_table.listed.of(sender) == told or (
                who.scope and _within(state, sender, scope) == told
            )
            if agrees and not _is_asked_anew(state, sender, request.since):
                return ListedAnswer(agrees=True)
            ended = [
                EndedHere(path=path, md5=row.md5, reason=_reason(row))
                for row in state.file_table.deleted_since(request.since)
                if row.sender == sender and _is_let_go(state, row)
                if scope.first_outside(row.devices) is None
                for path in row.paths
            ]
            behind = state.let_go.of(sender, request.since)
            ended += islice(_forgotten(state, behind), _MOST_ENDED)
        return ListedAnswer(agrees=False, ended=ended[:_MOST_ENDED])

    def ended(self, who: Principal, sender: str, page: ListedPage) -> EndedAnswer:
        """What of a page was let go here, though its sender never told its end.

        Of files that it freed: what nothing here knows of. It asks where nothing was restored, so
        these were deleted, and are forgotten.

        Raises:
            TooLargeError: the page has too many files.
        """
        check_sender(who, sender)
        if len(page.files) > self._most:
            raise TooLargeError(f"{len(page.files)} files on a page; at most {self._most}")
        asked = {(each.path, each.md5) for each in page.files}
        with self._engine.reading() as state:
            if page.freed:
                return EndedAnswer(ended=list(_unknown(state, sender, asked)))
            rows = state.files.of({sender}, held=False)
            ended = list(_ended(state, rows, asked))
            notes = (state.let_go.get(sender, *each) for each in asked)
            ended += _forgotten(state, (each for each in notes if each is not None))
        return EndedAnswer(ended=ended)


def _is_asked_anew(state: State, sender: str, since: int) -> bool:
    row = state.senders.get(sender)
    called_back = row is not None and row.called_back > since
    return called_back or came_back(state, sender, since)


def _within(state: State, sender: str, scope: Scope) -> tuple[int, str]:
    """How many files of a scope a sender has listed here, and the digest of them."""
    table, found = state.file_table, ListedSum()
    for row in table.listed_by(sender):
        if row.state is FileState.LIVE and scope.first_outside(row.devices) is None:
            for path in row.paths:
                found.add(path, row.md5, table.listed.deletions(row.physical))
    return found.files, found.digest


def _ended(
    state: State, rows: Iterable[FileRow], asked: set[tuple[str, str]]
) -> Iterable[EndedHere]:
    for row in rows:
        found = [path for path in row.paths if (path, row.md5) in asked]
        if not found:
            continue
        let_go = _is_let_go(state, row) or is_operators(row)
        reason = _reason(row) if let_go else _TRANSFERRED
        if let_go or is_anothers(state, row):
            for path in found:
                asked.discard((path, row.md5))
                yield EndedHere(path=path, md5=row.md5, reason=reason)


def _unknown(state: State, sender: str, asked: set[tuple[str, str]]) -> Iterable[EndedHere]:
    contents = {md5 for _, md5 in asked}
    known = {row.md5 for row in state.files.of({sender}) if row.md5 in contents}
    for path, md5 in sorted(asked):
        if md5 in known or (sender, path, md5) in state.lost_table.rows:
            continue
        if not state.compacted_table.finals.with_leaf(sender, path, md5):
            yield EndedHere(path=path, md5=md5, reason="deleted, and forgotten")


def _forgotten(state: State, notes: Iterable[LetGoRow]) -> Iterable[EndedHere]:
    """What an operator deleted, of files that are forgotten but for that."""
    for row in notes:
        held = state.file_table.held(row.sender, row.path)
        if held is None or held.md5 != row.md5:
            yield EndedHere(path=row.path, md5=row.md5, reason=_OPERATOR)


def is_awaited(state: State, row: FileRow) -> bool:
    """Whether a deleted file may come again, and has to be known then.

    What an operator deleted: a sender that finds nothing of it here takes it for lost, or for new,
    however long ago it was told, and whatever it has told of it since; so does one that takes its
    place. (What has expired may come again: it expires again, if its TTL holds still.)
    """
    known = row.sender in state.senders
    return (
        known
        and is_operators(row)
        and is_last_of_content(state, row)
        and not is_told_by_merge(state, row)  # that has a note when the merge is forgotten
    )


def _is_let_go(state: State, row: FileRow) -> bool:
    """Whether this side decided it: past its TTL, or deleted by an operator.

    Its sender lists it still, also where it had ended here with a transfer.
    """
    expired = row.state is FileState.DELETED and row.reason == _EXPIRED
    if not expired and not is_operators(row):
        return False
    return not row.retired or ended_with_transfer(state, row)


def _reason(row: FileRow) -> str:
    return _OPERATOR if is_operators(row) else str(row.reason)
