"""Deletions of a sender that took over from others: they hide points of what those had listed too.

A box that was replaced goes on with the same database, so what it deletes is deleted of the files
that only the old box had listed. Records are noted for the predecessor as well, so whoever applies
deletions finds them there and need not know of successions. A sender is one's predecessor if it
lists nothing any more and all devices of its files are the heir's.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from receiver.load.deciding.known_deletions import KeptRecords
from receiver.metadata.model.records import DeletionsNoted
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import DeletionsRow, FileRow

__all__ = ["inherited", "inherited_kept", "notes_of", "predecessors"]

_KEPT = (FileState.RETIRED, FileState.SUPERSEDED)
"""What is given, or would be if what it rests on left sight."""


def predecessors(state: State, heir: str) -> list[str]:
    """The senders that a sender took over from, wholly."""
    table = state.file_table
    maybe = {uuid for uuid in state.senders if uuid != heir and not table.inventory(uuid, None, 1)}
    if not maybe:
        return []
    found: set[str] = set()
    for row in state.files.values():
        if row.sender in maybe and row.state in _KEPT:
            found.add(row.sender)
            owners = (state.owners.get(device) for device in row.devices)
            if any(owner is None or owner.sender != heir for owner in owners):
                maybe.discard(row.sender)
    return sorted(found & maybe)


def notes_of(rows: Iterable[DeletionsRow], loaded: str | None = None) -> Iterator[DeletionsNoted]:
    """What is known of deletion files, as it was noted.

    Args:
        rows: of one sender.
        loaded: the physical path of a file that is just loaded, if they are of that.
    """
    for row in rows:
        base = 0
        for each in row.segments:
            yield DeletionsNoted(
                sender=row.sender,
                path=row.path,
                physical=loaded or row.physical,
                form=row.form,
                base=base,
                content=row.content[base : each.end],
                floor=each.floor,
                applied=each.applied,
                held=each.held,
                author=row.by,
                kept=each.kept,
            )
            base = each.end


def inherited(
    state: State,
    predecessor: str,
    notes: Iterable[DeletionsNoted],
    loads: Mapping[str, tuple[str, str]],
) -> Iterator[DeletionsNoted]:
    """Notes of an heir, as notes of a predecessor.

    Args:
        state: committed.
        predecessor: a sender that it took over from.
        notes: of the heir, in order.
        loads: physical path -> (tail, MD5) of files that the same commit loads.
    """
    known: dict[tuple[str | None, str, str], bytes] = {}
    theirs: dict[tuple[str | None, str, str], bytes] = {}
    for op in notes:
        same = _same_file(state, predecessor, op, loads)
        physical = None if same is None else same.physical
        of_heir = None if op.physical in loads else op.physical  # a load takes over what is noted
        whole = _known(state, theirs, op.sender, op.path, of_heir, op.form)[: op.base]
        theirs[of_heir, op.path, op.form] = whole = whole + op.content
        before = _known(state, known, predecessor, op.path, physical, op.form)
        if same is None:
            if not op.floor or _is_inherited(state, predecessor, op):
                continue
            content = op.content  # what hides points of others stands there for nothing else
        elif whole.startswith(before):
            content = whole[len(before) :]
        else:
            continue
        if content:
            known[physical, op.path, op.form] = before + content
            yield msgspec.structs.replace(
                op, sender=predecessor, physical=physical, base=len(before), content=content
            )


def inherited_kept(
    state: State, predecessor: str, kept: Sequence[KeptRecords]
) -> Iterator[KeptRecords]:
    """What an heir lets be applied of what it had only kept, of a predecessor's deletion files.

    Args:
        state: committed.
        predecessor: a sender that it took over from.
        kept: the heir's.
    """
    theirs: dict[tuple[str, str], list[DeletionsRow]] = defaultdict(list)
    for row in state.deletion_table.of_sender(predecessor) if kept else ():
        if not row.past:
            theirs[row.path, row.form].append(row)
    for each in kept:
        told = {(part.floor, content) for _, content, part in each.parts()}
        for row in theirs[each.op.path, each.op.form]:
            begin, ends = 0, []
            for segment in row.segments:
                records = (segment.floor, row.content[begin : segment.end])
                if segment.may_apply and records in told:
                    ends.append(segment.end)
                begin = segment.end
            if ends:
                op = msgspec.structs.replace(
                    each.op, sender=predecessor, physical=row.physical, ends=ends
                )
                yield KeptRecords(op, row)


def _is_inherited(state: State, predecessor: str, op: DeletionsNoted) -> bool:
    """Whether that very note was taken over before: a succession may be said once more."""
    for row in state.deletion_table.unloaded(predecessor, op.path):
        base = 0
        for each in row.segments:
            if (row.form, each.floor, row.content[base : each.end]) == (
                op.form,
                op.floor,
                op.content,
            ):
                return True
            base = each.end
    return False


def _same_file(
    state: State, predecessor: str, op: DeletionsNoted, loads: Mapping[str, tuple[str, str]]
) -> FileRow | None:
    """The file that a predecessor had under the path that the note is of, with that content."""
    if op.physical is None:
        return None
    row = state.files.get(op.physical)
    content = loads.get(op.physical) if row is None else (row.tail, row.md5)
    if content is None:
        return None
    tail, md5 = content
    return next(
        (
            each
            for each in state.file_table.of_tail(tail)
            if (each.sender, each.md5) == (predecessor, md5)
            and each.state in _KEPT
            and op.path in each.paths
        ),
        None,
    )


def _known(
    state: State,
    just_now: Mapping[tuple[str | None, str, str], bytes],
    sender: str,
    path: str,
    physical: str | None,
    form: str,
) -> bytes:
    """What is noted of a deletion file already."""
    if (physical, path, form) in just_now:
        return just_now[physical, path, form]
    table = state.deletion_table
    rows = table.unloaded(sender, path) if physical is None else table.of_file(physical)
    return next((row.content for row in rows if row.form == form), b"")
