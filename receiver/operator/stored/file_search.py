"""Loaded files by path, state, edge and time, in pages that cost the same however many there are.

Files lie sorted by physical path, and those of an edge by their path there: a beginning of a path
is found at once. What has no order (another state, times) is looked for among so many files of a
page at most; then the page ends where the look did, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from common.errors import UsageError
from receiver.metadata.query.row_source import Look
from receiver.metadata.query.seen_files import SeenFile, seen_files
from receiver.metadata.sql.executing import moment
from receiver.metadata.state.table_rows import FileState
from receiver.operator.stored.files import EXPIRED, FILE_STATES, view_of_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.operator.directories import ReceiverDirectories
    from receiver.operator.views.file_views import FileView

__all__ = ["SEARCHED_STATES", "FileSearch", "FoundFiles", "search_files"]

VISIBLE: Final = "visible"
ADOPTED: Final = "adopted"
SEARCHED_STATES: Final = (VISIBLE, *FILE_STATES, ADOPTED)
"""What files can be searched by: all that readers see, one state, or those that readers see and
that were taken from an old receiver and not verified since."""
_STEP: Final = 500
_MOST: Final = 20_000
"""Files that one page looks at."""
_LAST: Final = "\U0010ffff"
_KINDS: Final = ("sequence", "unsequence")


@dataclass(frozen=True)
class FileSearch:
    """Which files are wanted.

    Attributes:
        prefix: how their path begins, with or without `sequence/` or `unsequence/`.
        state: one of `SEARCHED_STATES`.
        sender: uuid of the edge; None for all.
        begin: only files that have this time or a later one, in the unit of the files.
        end: only files that have this time or an earlier one.
        at: a commit timestamp or a time: the files that readers saw then.
        after: the cursor of the page before.
        count: files of a page.
    """

    prefix: str = ""
    state: str = VISIBLE
    sender: str | None = None
    begin: int | None = None
    end: int | None = None
    at: str | None = None
    after: str | None = None
    count: int = 50

    def wants(self, row: FileRow) -> bool:
        """Whether a file is one of them; of a time in the past the state is what it was."""
        return (
            (self.sender is None or row.sender == self.sender)
            and (self.at is not None or self._stands_so(row))
            and (self.begin is None or (row.last is not None and row.last >= self.begin))
            and (self.end is None or (row.first is not None and row.first <= self.end))
        )

    def _stands_so(self, row: FileRow) -> bool:
        if self.state == VISIBLE:
            return row.visible
        if self.state == ADOPTED:  # which of them are, the table of adoptions says
            return row.visible and not row.verified
        if self.state == EXPIRED:
            return row.state is FileState.DELETED and row.reason == EXPIRED
        return row.state == self.state


@dataclass(frozen=True)
class FoundFiles:
    """A page of files.

    Attributes:
        commit: that they are as of.
        commit_at: when that was.
        files: of the page; of the past, `deleted` is the commit that took one out of sight since.
        next: the cursor of the page after; None for none.
        looked_at: how many were looked at; less than all where `next` is and the page is not full.
    """

    commit: int
    commit_at: float
    files: list[FileView]
    next: str | None
    looked_at: int


class _Range(NamedTuple):
    """Files in order of a key from behind one on, as long as it begins with a text."""

    prefix: str
    after: str | None


def search_files(there: ReceiverDirectories, search: FileSearch) -> FoundFiles:
    """A page of the files that are wanted.

    Raises:
        UsageError: there is no such state, or the time is none.
        HistoryGoneError: the time is before the kept history.
    """
    if search.state not in SEARCHED_STATES:
        raise UsageError(f"state: expected one of {', '.join(SEARCHED_STATES)}")
    engine = there.engine
    look = Look(engine, engine.at(moment(search.at)))
    found: list[FileView] = []
    looked, last, more = 0, search.after, False
    for key, seen in _candidates(there, look, search):
        if len(found) == search.count or looked == _MOST:
            more = True
            break
        looked, last = looked + 1, key
        if search.wants(seen.row) and _is_of_kind(there, search, seen.row):
            view = view_of_file(seen.row, there)
            found.append(view if not seen.ended else replace(view, deleted=seen.ended))
    return FoundFiles(
        commit=look.ts,
        commit_at=engine.times.seconds(look.ts),
        files=found,
        next=last if more else None,
        looked_at=looked,
    )


def _is_of_kind(there: ReceiverDirectories, search: FileSearch, row: FileRow) -> bool:
    """Whether a file was adopted, if that is asked for; of the past it is not told."""
    if search.state != ADOPTED or search.at is not None:
        return True
    with there.engine.reading() as state:
        return state.adoption_table.is_adopted(row)


def _candidates(
    there: ReceiverDirectories, look: Look, search: FileSearch
) -> Iterator[tuple[str, SeenFile]]:
    """Keys of an order and the files under them, those that may be wanted at least."""
    for each in _ranges(search):
        if search.at is not None:
            yield from _of_the_past(look, each)
        else:
            for key, row in _of_now(there, search, each):
                yield key, SeenFile(row)


def _of_the_past(look: Look, wanted: _Range) -> Iterator[tuple[str, SeenFile]]:
    def may_be_in(directory: str) -> bool:
        inside = f"{directory}/"
        return inside.startswith(wanted.prefix) or wanted.prefix.startswith(inside)

    within = may_be_in if wanted.prefix else None
    for seen in seen_files(look, wanted.after, within):
        physical = seen.row.physical
        if physical.startswith(wanted.prefix):
            yield physical, seen
        elif physical > wanted.prefix:
            return


def _of_now(
    there: ReceiverDirectories, search: FileSearch, wanted: _Range
) -> Iterator[tuple[str, FileRow]]:
    after = wanted.after
    while True:
        with there.engine.reading() as state:
            rows = _page(state, search, after)
        for key, row in rows:
            if not key.startswith(wanted.prefix):
                return
            yield key, row
        if len(rows) < _STEP:
            return
        after = rows[-1][0]


def _page(state: State, search: FileSearch, after: str | None) -> list[tuple[str, FileRow]]:
    table = state.file_table
    if search.sender is not None and search.state == FileState.LIVE:
        return [(row.path, row) for row in table.inventory(search.sender, after, _STEP)]
    order = FileState.LIVE
    if search.state not in (VISIBLE, ADOPTED, FileState.RETIRED):
        order = FileState.DELETED if search.state == EXPIRED else FileState(search.state)
    return [(row.physical, row) for row in table.among(order, after, _STEP)]


def _ranges(search: FileSearch) -> Iterator[_Range]:
    """Where to look, and from where on; a cursor lies in one of the ranges."""
    for prefix in _prefixes(search.prefix):
        begin = _before(prefix)
        after = search.after
        if (after is not None and begin is not None and after < begin) or after is None:
            after = begin
        yield _Range(prefix, after)


def _prefixes(text: str) -> list[str]:
    """Beginnings of physical paths; those have a tag before `.tsfile` that the edge's have not."""
    text = text.strip().removeprefix("/").removesuffix(".tsfile")
    if not text or any(kind.startswith(text) or text.startswith(f"{kind}/") for kind in _KINDS):
        return [text]
    return [f"{kind}/{text}" for kind in _KINDS]


def _before(prefix: str) -> str | None:
    """A text that all texts with this beginning sort behind, and none that sorts before them."""
    if not prefix:
        return None
    return f"{prefix[:-1]}{chr(max(ord(prefix[-1]) - 1, 0))}{_LAST}"
