"""Content that an operator deleted here: it does not come again by itself, whoever has it still.

What an edge lists is no proof of what it has heard: it may have lost its list, be restored from a
copy of its disk, or be another box with that disk. So the content decides, under any name and of
any sender; a file without points has no identity beyond its path. What happened to the content last
counts: once it is loaded again, by whatever way, the deletion before is no reason any more. Nor is
that of a second file with the same content for what a sender has here under the path in question:
should its bytes be bad or gone, there is nobody else to bring them; once they were brought under
that path, the deletion of what was brought counts. What readers see in a file of another sender is
that one's, not deleted. With what was merged for good goes all that it was made of. Where that is
in several merged files, and an operator deleted some, each point of it is deleted or read in the
others; only while one of these is bad, it is taken: there is nobody else to bring what was in that
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.names import FilePath
from receiver.metadata.model import records
from receiver.metadata.model.paths import ROOT
from receiver.metadata.state.table_rows import FileState, is_same_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow, MergedLeaf

__all__ = [
    "DELETED_HERE",
    "deleted_by_operator",
    "deleted_with",
    "is_last_of_content",
    "is_operators",
    "is_told_by_merge",
]

DELETED_HERE: Final = (
    "an operator of the receiver deleted this very content; `quarantine retry` of it at its "
    "sender, or `tsferry-receiver load`, brings it again"
)
"""What a sender is told of such a file."""
_OPERATOR: Final = "operator"
_EVERYWHERE: Final = "everywhere"


def deleted_by_operator(
    state: State, sender: str, path: str, *, tail: str, size: int | None, md5: str | None
) -> int:
    """The commit by which an operator deleted a content, if that is the last that became of it.

    Args:
        state: committed.
        sender: who would bring it.
        path: under which.
        tail: digest of its tail.
        size: bytes, where they are known.
        md5: of it, where it is known.
    """
    held = state.file_table.held(sender, path)
    if held is not None and held.tail == tail and _is_content(held, size, md5):
        return 0
    found = [(0, 0)]
    is_here = False
    bad, deleted_rows = [], []
    group = FilePath.parse(path).sg
    for row in _of_tail(state, tail):
        is_same = _is_content(row, size, md5) and is_same_in(row, group)
        if is_same and _is_known_as(row, sender, [path]):
            if row.visible and row.sender != sender:
                return 0  # one of several with this content: it is somebody else's, not gone
            is_here |= row.state is not FileState.DELETED
            if row.state is FileState.QUARANTINED:
                bad.append(row)
            if is_operators(row):
                deleted_rows.append(row)
            if not is_told_by_merge(state, row):
                found.append((row.created, row.deleted if is_operators(row) else 0))
    dropped = state.compacted_table.finals.dropped_with(sender, path, tail, md5)
    merges = [each for each in dropped if _may_be_in(each[1].path, group)]
    if not is_here and merges:
        if any(_is_wanted(state, *each) for each in merges):
            return 0
        found += [(commit, commit) for each in merges for commit in _drops(*each)]
    notes = [
        each
        for each in state.let_go.of_tail(tail)
        if md5 in (None, each.md5) and _may_be_in(each.path, group)
    ]
    note = None if md5 is None else state.let_go.get(sender, path, md5)
    found += [(each.deleted, each.deleted) for each in (*notes, *([note] if note else ()))]
    deleted = max(found)[1]
    # One of several with this content, and not the last: what readers had then is bad since.
    is_wanted = any(
        row.changed > deleted
        or (
            (row.sender == sender and path in row.paths)
            and not (note is not None and note.deleted > row.created)
            and not any(_is_in_place_of(each, row) for each in deleted_rows)
        )
        for row in bad
    )
    return 0 if is_wanted else deleted


def _is_in_place_of(row: FileRow, bad: FileRow) -> bool:
    """Whether a file was brought for one that is bad, under its name."""
    same_name = row.sender == bad.sender and not set(row.paths).isdisjoint(bad.paths)
    return same_name and row.created > bad.created


def deleted_with(state: State, merge: CompactedRow) -> list[records.LetGoNoted]:
    """Notes of what a final compaction was made of, and an operator deleted what came of it.

    Of content that came since there are none.
    """
    found = []
    for leaf in merge.merged_leaves if merge.dropped else ():
        deleted = deleted_by_operator(
            state, merge.sender, leaf.path, tail=leaf.tail, size=None, md5=leaf.md5
        )
        held = state.file_table.held(merge.sender, leaf.path)
        if deleted and (held is None or held.md5 != leaf.md5):
            found.append(records.LetGoNoted(merge.sender, leaf.path, leaf.md5, deleted, leaf.tail))
    return found


def _drops(merge: CompactedRow, leaf: MergedLeaf) -> list[int]:
    """The commits by which an operator deleted merged files that may have points of a file."""
    into = _into(merge, leaf)
    return [commit for name, commit in merge.dropped if name in into]


def _is_wanted(state: State, merge: CompactedRow, leaf: MergedLeaf) -> bool:
    """Whether a merged file is bad that may have points of a file, and that nobody deleted."""
    rows = (state.files.get(each) for each in _into(merge, leaf))
    return any(row is not None and row.state is FileState.QUARANTINED for row in rows)


def _into(merge: CompactedRow, leaf: MergedLeaf) -> set[str]:
    return {name for place, name in enumerate(merge.became) if leaf.into >> place & 1}


def is_operators(row: FileRow) -> bool:
    """Whether an operator of this centre deleted a file.

    What came from a centre below may have been deleted everywhere by the operator of that one, who
    may bring it back.
    """
    here = row.reason == _OPERATOR or (row.reason == _EVERYWHERE and row.origin is None)
    return row.state is FileState.DELETED and here


def is_told_by_merge(state: State, row: FileRow) -> bool:
    """Whether a deleted file went along with what it was merged into, which may be called back."""
    with_leaf = state.compacted_table.finals.with_leaf
    return row.superseded > 0 and any(with_leaf(row.sender, path, row.md5) for path in row.paths)


def is_last_of_content(state: State, row: FileRow) -> bool:
    """Whether no file came behind a deleted one that has its content."""
    return not any(
        (each.size, each.md5) == (row.size, row.md5)
        and each.created > row.created
        and is_same_in(each, row.parsed.sg)
        and _is_known_as(each, row.sender, row.paths)
        for each in _of_tail(state, row.tail)
    )


def _may_be_in(path: str, group: str) -> bool:
    """Whether content under a path may be the same in a group: of a tree, or of that database."""
    mine = FilePath.parse(path).sg
    return mine == group or mine.partition(".")[0] == ROOT


def _of_tail(state: State, tail: str) -> list[FileRow]:
    return [*state.file_table.of_tail(tail), *state.file_table.deleted_of_tail(tail)]


def _is_content(row: FileRow, size: int | None, md5: str | None) -> bool:
    return size in (None, row.size) and md5 in (None, row.md5)


def _is_known_as(row: FileRow, sender: str, paths: Sequence[str]) -> bool:
    """Whether a file with the same content stands for it: by its points, or else by its path."""
    return row.points > 0 or (row.sender == sender and not set(row.paths).isdisjoint(paths))
