"""Files that neither side has any more: what of them an operator does not know of yet."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from receiver.metadata.state.table_rows import FileState, LostRow, is_same_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from receiver.metadata.model import records
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["lost_files", "unknown_here"]


def lost_files(state: State, sender: str | None = None) -> list[LostRow]:
    """Lost files that nobody has acknowledged, the longest lost first.

    Those that a sender told of, and those that are in quarantine and gone at the edge, be their
    ends held or not; not what is visible under another name.

    Args:
        state: committed.
        sender: only of this one.
    """
    table = state.lost_table
    told = [row for row in table.rows.values() if not row.acknowledged]
    bad = [
        _lost(row)
        for row in (*state.file_table.lost(), *_ends_held(state))
        if not (table.is_acknowledged(row) or _is_elsewhere(state, row))
    ]
    found = [row for row in (*told, *bad) if sender in (None, row.sender)]
    return sorted(found, key=lambda row: (row.changed, row.key))


def unknown_here(state: State, told: Iterable[records.FileLost]) -> list[records.FileLost]:
    """Of files that a sender had loaded here and has no more, those that no row knows.

    A row of the same content says what became of it, whatever that was; one that was deleted only
    if it had the very path, for the content may have come once more under another one. What was
    merged for good is known by what it is in, and what an operator deleted by a note of it. What is
    lost already, or acknowledged, is not told again.

    Args:
        state: committed.
        told: of one sender.
    """
    new = {
        (op.sender, op.path, op.md5): op
        for op in told
        if (op.sender, op.path, op.md5) not in state.lost_table.rows
        and not state.compacted_table.finals.with_leaf(op.sender, op.path, op.md5)
        and state.let_go.get(op.sender, op.path, op.md5) is None
    }
    if not new:
        return []
    contents = {(op.sender, op.md5, op.size) for op in new.values()}
    known: dict[tuple[str, str, int], list[FileRow]] = defaultdict(list)
    sizes = {size for _, _, size in contents}
    for row in state.files.of({sender for sender, _, _ in contents}, sizes=sizes):
        if (content := (row.sender, row.md5, row.size)) in contents:
            known[content].append(row)
    return [
        op
        for op in new.values()
        if not any(
            row.state is not FileState.DELETED or op.path in row.paths
            for row in known[op.sender, op.md5, op.size]
        )
    ]


def _ends_held(state: State) -> list[FileRow]:
    """Files in quarantine whose ends wait for an operator: told as gone, and not retired yet."""
    lists = [each for each in state.held_deletes.rows.values() if not each.records]
    if not lists:
        return []
    wanted = {row.physical: row for row in state.file_table.quarantined() if not row.retired}
    held = dict.fromkeys(
        physical for each in lists for physical in each.files if physical in wanted
    )
    return [wanted[physical] for physical in held]


def _is_elsewhere(state: State, row: FileRow) -> bool:
    """Whether its content is visible, maybe as a file of the box that took its sender's place."""
    return any(
        each.visible
        and (each.md5, each.size) == (row.md5, row.size)
        and (each.points > 0 or each.sender == row.sender)
        and is_same_in(each, row.parsed.sg)
        for each in state.file_table.of_tail(row.tail)
    )


def _lost(row: FileRow) -> LostRow:
    return LostRow(
        sender=row.sender,
        path=row.path,
        md5=row.md5,
        size=row.size,
        first=row.first,
        last=row.last,
        reason=str(row.reason or ""),
        physical=row.physical,
        created=row.created,
        changed=row.changed,
    )
