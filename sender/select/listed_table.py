"""The list of loaded files as a table, and a scan held against it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from common.digests import is_md5
from common.listed import ListedSum
from common.names import Kind
from sender.select.entry import Entry, EntryState
from sender.select.found import LOCAL_FILES
from sender.select.path_table import Directory, PathBlock, PathTable, pack_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from common.names import FilePath
    from sender.select.found import LocalFile

__all__ = ["LISTED_FILES", "Tally", "last_time", "listed_sum", "rows_of_kind", "tally_of",
           "unsettled", "with_other_resources"]  # fmt: skip

_STATES: Final = (EntryState.LOADED, EntryState.LISTED, EntryState.ENDED, EntryState.SENT)
_STATE = 0b0011
_NO_MARK: Final = (-1, 0)
_MARK_AT: Final = struct.calcsize("<B16sqq")
_MARK_SIZE: Final = 16
_RESOURCE_AT: Final = 1
"""Where a mark stands in what is known of an entry, how long it is, and where of a local file."""
_MD5, _FIRST, _LAST = 0b0100, 0b1000, 0b1_0000
"""Beside the state: which of the facts are known."""
_SETTLED: Final = frozenset(
    state | _MD5 | times
    for state in (_STATES.index(EntryState.LOADED), _STATES.index(EntryState.ENDED))
    for times in (0, _FIRST, _LAST, _FIRST | _LAST)
)


class _EntryForm:
    """An entry in a table: behind its numbers the state, the MD5, the first and the last time.

    Then size and modification time of its resource, a size of -1 where they are not known: as
    `LOCAL_FILES` has them.
    """

    rest = struct.Struct("<B16sqqqq")

    def where(self, row: Entry) -> None:
        return None

    def pack(self, row: Entry) -> tuple[bytes, bytes]:
        known, first, last = _STATES.index(row.state), _time(row.first_time), _time(row.last_time)
        md5 = b""
        if is_md5(row.md5):
            known, md5 = known | _MD5, bytes.fromhex(row.md5)
        known |= (_FIRST if first is not None else 0) | (_LAST if last is not None else 0)
        mark = row.resource_mark or _NO_MARK
        return pack_numbers(*row.identity), self.rest.pack(known, md5, first or 0, last or 0, *mark)

    def row(
        self,
        path: FilePath,
        block: PathBlock,
        numbers: tuple[int, int, int],
        rest: tuple[int, bytes, int, int, int, int],
    ) -> Entry:
        known, md5, first, last, *mark = rest
        return Entry(
            path,
            block.data_dir,
            *numbers,
            md5.hex() if known & _MD5 else "",
            first if known & _FIRST else None,
            last if known & _LAST else None,
            _STATES[known & _STATE],
            None if mark[0] < 0 else (mark[0], mark[1]),
        )


def _time(time: int | None) -> int | None:
    return None if time is None or not -(1 << 63) <= time < 1 << 63 else time


LISTED_FILES: Final = _EntryForm()
"""How entries stand in a table."""


def _known(block: PathBlock) -> bytes:
    """What is known of each file of a block, a byte a file."""
    return block.rest[:: LISTED_FILES.rest.size]


# -- a scan against the list ---------------------------------------------------------------------


def unsettled(
    files: Mapping[FilePath, LocalFile], entries: Mapping[FilePath, Entry]
) -> Iterator[tuple[LocalFile, Entry | None]]:
    """Local files, but for those that are surely on the list just as they are.

    These are listed in the same data directory, by number and content, and not only by the
    receiver's word. What lists each of the others, if anything, goes with it.
    """
    if not (isinstance(files, PathTable) and isinstance(entries, PathTable)):
        for path, file in files.items():
            entry = entries.get(path)
            if entry is None or not _is_settled(file, entry):
                yield file, entry
        return
    for directory, blocks in files.directories().items():
        for block in blocks:
            listed = _beside(entries, directory, block)
            if listed is not None and listed.is_as(block) and _SETTLED.issuperset(_known(listed)):
                continue
            yield from _unsettled_rows(files, block, listed, entries)


def _is_settled(file: LocalFile, entry: Entry) -> bool:
    listed = entry.state is not EntryState.LISTED and entry.md5
    return bool(listed) and entry.data_dir == file.data_dir and entry.is_of(file)


def _beside(entries: PathTable[Entry], directory: Directory, block: PathBlock) -> PathBlock | None:
    for each in entries.directories().get(directory, ()):
        if each.data_dir == block.data_dir:
            return each
    return None


def _unsettled_rows(
    files: PathTable[LocalFile],
    block: PathBlock,
    listed: PathBlock | None,
    entries: Mapping[FilePath, Entry],
) -> Iterator[tuple[LocalFile, Entry | None]]:
    settled: dict[str, bytes] = {}
    if listed is not None:
        known = _known(listed)
        settled = {
            name: listed.numbers_at(at)
            for at, name in enumerate(listed.list_names())
            if known[at] in _SETTLED
        }
    for at, name in enumerate(block.list_names()):
        if settled.get(name) != block.numbers_at(at):
            file = files.row(block, name, at)
            yield file, entries.get(file.path)


def with_other_resources(
    files: Mapping[FilePath, LocalFile],
    entries: Mapping[FilePath, Entry],
    *,
    unknown: bool = True,
) -> Iterator[LocalFile]:
    """Listed files that are just as they were, but for what lies beside them as their resources.

    Of a directory without any no file is looked at.

    Args:
        files: local ones.
        entries: the list.
        unknown: whether those count of which nobody knows what the receiver was told.
    """
    if not (isinstance(files, PathTable) and isinstance(entries, PathTable)):
        for path, file in files.items():
            entry = entries.get(path)
            if entry is not None and _has_other_resource(file, entry, unknown):
                yield file
        return
    for directory, blocks in files.directories().items():
        for block in blocks:
            listed = _beside(entries, directory, block)
            if listed is None or (listed.names == block.names and _have_same_marks(listed, block)):
                continue
            if not unknown and _have_no_marks(listed):
                continue
            for file in files.rows(block):
                entry = entries.get(file.path)
                if entry is not None and _has_other_resource(file, entry, unknown):
                    yield file


def _has_other_resource(file: LocalFile, entry: Entry, unknown: bool) -> bool:
    if entry.resource_mark == file.resource_mark or file.resource is None:
        return False
    counts = unknown or entry.resource_mark is not None
    return counts and entry.state is EntryState.LOADED and _is_settled(file, entry)


def _have_no_marks(listed: PathBlock) -> bool:
    """By the byte that has the sign of the size."""
    return not listed.rest[_MARK_AT + 7 :: LISTED_FILES.rest.size].strip(b"\xff")


def _have_same_marks(listed: PathBlock, block: PathBlock) -> bool:
    """By slices of one byte of each file, for an object of each file costs much more."""
    there, here = LISTED_FILES.rest.size, LOCAL_FILES.rest.size
    return all(
        listed.rest[_MARK_AT + at :: there] == block.rest[_RESOURCE_AT + at :: here]
        for at in range(_MARK_SIZE)
    )


def rows_of_kind(entries: Mapping[FilePath, Entry], kind: Kind) -> Iterator[Entry]:
    """What is listed in one of the two spaces."""
    if not isinstance(entries, PathTable):
        yield from (each for path, each in entries.items() if path.kind is kind)
        return
    late = kind is Kind.UNSEQUENCE
    for directory, blocks in entries.directories().items():
        if directory[0] is late:
            for block in blocks:
                yield from entries.rows(block)


# -- what is counted of the list -----------------------------------------------------------------


class Tally(NamedTuple):
    """What is counted of entries.

    Attributes:
        files: how many count as loaded at both ends.
        total: of these (`ListedSum.total`), without any deletion file.
        last: the last time of all; None where none is known.
    """

    files: int
    total: int
    last: int | None

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Tally:
        """Count them."""
        made, last = ListedSum(), None
        for each in entries:
            if each.state is not EntryState.ENDED:
                made.add(each.path.text, each.md5)
            if each.last_time is not None and (last is None or each.last_time > last):
                last = each.last_time
        return cls(made.files, made.total, last)


def tally_of(entries: PathTable[Entry], block: PathBlock) -> Tally:
    """What is counted of a block: once, for it never changes."""
    if block.tally is None:
        block.tally = Tally.of(entries.rows(block))
    found: Any = block.tally
    assert isinstance(found, Tally)
    return found


def _tallies(entries: Mapping[FilePath, Entry]) -> Iterator[Tally]:
    if isinstance(entries, PathTable):
        yield from (tally_of(entries, block) for block in entries.blocks())
    else:
        yield Tally.of(entries.values())


def listed_sum(entries: Mapping[FilePath, Entry]) -> ListedSum:
    """The sum of what counts as loaded at both ends, without any deletion file."""
    made = ListedSum()
    for each in _tallies(entries):
        made.take(each.files, each.total)
    return made


def last_time(entries: Mapping[FilePath, Entry]) -> int | None:
    """The last time of all data that is listed; None where none is known."""
    return max((each.last for each in _tallies(entries) if each.last is not None), default=None)
