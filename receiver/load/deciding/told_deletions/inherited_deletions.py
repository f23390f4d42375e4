"""Deletions of a sender that took over from others: they hide points of what those had listed too.

A box that was replaced goes on with the same database, so what it deletes is deleted of the files
that only the old box had listed. Records are noted for the predecessor as well, so whoever applies
deletions finds them there and need not know of successions. They stand apart from what it tells of
its own files, which may have the same paths. A sender is one's predecessor if it lists nothing any
more and all devices of its files are the heir's.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from common.wire import DeletionsForm, DeletionsPart
from receiver.load.deciding.told_deletions.known_deletions import KnownDeletions
from receiver.metadata.model.records import DeletionsNoted, KeptRecordsApplied
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from receiver.load.deciding.told_deletions.known_deletions import KeptRecords
    from receiver.metadata.state.deletion_rows import DeletionsRow
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["inherited", "notes_of", "predecessors"]

_KEPT = (FileState.RETIRED, FileState.SUPERSEDED)
"""What is given, or would be if what it rests on left sight."""
_DeletionFile: TypeAlias = tuple[str, str]
"""Physical path of the TsFile, and the form."""


def predecessors(state: State, heir: str) -> list[str]:
    """The senders that a sender took over from, wholly."""
    table = state.file_table
    maybe = {uuid for uuid in state.senders if uuid != heir and not table.inventory(uuid, None, 1)}
    if not maybe:
        return []
    found: set[str] = set()
    for row in state.files.of(maybe):
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
    kept: Sequence[KeptRecords] = (),
) -> Iterator[DeletionsNoted | KeptRecordsApplied]:
    """What is to be noted of a predecessor's deletion files, for what is noted of its heir's.

    Args:
        state: committed.
        predecessor: a sender that it took over from.
        notes: of the heir, in order.
        loads: physical path -> (tail, MD5) of files that the same commit loads.
        kept: what the heir had only kept and lets be applied.
    """
    known: dict[tuple[str, str], bytes] = {}
    same_files: dict[_DeletionFile, FileRow] = {}
    fresh: dict[_DeletionFile, list[DeletionsNoted]] = defaultdict(list)
    applying: dict[_DeletionFile, KeptRecords] = {}
    for note in notes:
        same = _same_file(state, predecessor, note, loads)
        if same is not None:
            same_files[_file_of(note)] = same
            fresh[_file_of(note)].append(note)
        elif note.floor and not _is_inherited(state, predecessor, note):
            # What hides points of others stands there for nothing else.
            path, form = note.path, note.form
            before = known.get((path, form)) or _noted(state, predecessor, note)
            known[path, form] = before + note.content
            yield msgspec.structs.replace(
                note, sender=predecessor, physical=None, base=len(before), heir=note.sender
            )
    for each in kept:
        same = _same_file(state, predecessor, each.op, loads)
        if same is None:
            yield from _kept_of_others(state, predecessor, each)
        else:
            same_files[_file_of(each.op)] = same
            applying[_file_of(each.op)] = each
    told: dict[_DeletionFile, list[DeletionsNoted]] = defaultdict(list)
    for file, same in same_files.items():  # what had two names there may be two files here
        before_it = _told_before(state, file, applying.get(file))
        told[same.physical, file[1]] += [*before_it, *fresh[file]]
    rows = {same.physical: same for same in same_files.values()}
    for (physical, _), several in told.items():
        yield from _of_same_file(state, predecessor, rows[physical], several)


def _told_before(
    state: State, file: _DeletionFile, applying: KeptRecords | None
) -> Iterator[DeletionsNoted]:
    """What is committed of a deletion file of the heir; what is to be applied now, as applied."""
    physical, form = file
    rows = [row for row in state.deletion_table.of_file(physical) if row.form == form]
    if applying is None:
        yield from notes_of(rows)
        return
    ends, held = set(applying.op.ends), applying.op.held
    for note in notes_of([applying.row], physical):
        if note.base + len(note.content) in ends:
            yield msgspec.structs.replace(note, applied=not held, held=held, kept=None)
        else:
            yield note


def _of_same_file(
    state: State, predecessor: str, same: FileRow, told: Sequence[DeletionsNoted]
) -> Iterator[DeletionsNoted | KeptRecordsApplied]:
    """What the heir's deletion file says, noted of the file that its predecessor had as well.

    As if the predecessor had told it: what it had only kept, and its heir has applied, is applied.
    """
    done: set[int] = set()
    for held in dict.fromkeys(["", *(note.held for note in told)]):
        known, noted = KnownDeletions(state, predecessor, held=lambda _: same), 0
        for note in told:
            part = DeletionsPart(
                path=same.path,
                form=DeletionsForm(note.form),
                base=note.base,
                content=note.content,
                floor=note.floor,
                applied=note.applied or (bool(held) and note.held == held),
                author=note.author,
            )
            known.take(part)
            for op in known.ops[noted:] if not held else ():
                yield msgspec.structs.replace(
                    op, applied=note.applied, held=note.held, kept=note.kept
                )
            noted = len(known.ops)
        for each in known.kept():
            ends = [end for end in each.op.ends if end not in done]
            done.update(ends)
            if ends:
                yield msgspec.structs.replace(each.op, ends=ends, held=held)


def _kept_of_others(
    state: State, predecessor: str, kept: KeptRecords
) -> Iterator[KeptRecordsApplied]:
    """Records that stand there for the points of others, and were taken over as kept."""
    told = {(segment.floor, content) for _, content, segment in kept.parts()}
    for row in state.deletion_table.unloaded(predecessor, kept.op.path, kept.op.sender):
        begin, ends = 0, []
        for segment in row.segments:
            records = (segment.floor, row.content[begin : segment.end])
            if row.form == kept.op.form and segment.may_apply and records in told:
                ends.append(segment.end)
            begin = segment.end
        if ends:
            yield msgspec.structs.replace(
                kept.op, sender=predecessor, physical=None, ends=ends, heir=kept.op.sender
            )


def _file_of(op: DeletionsNoted | KeptRecordsApplied) -> _DeletionFile:
    return op.physical or "", op.form


def _is_inherited(state: State, predecessor: str, op: DeletionsNoted) -> bool:
    """Whether that very note was taken over before: a succession may be said once more."""
    for row in state.deletion_table.unloaded(predecessor, op.path, op.sender):
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
    state: State,
    predecessor: str,
    op: DeletionsNoted | KeptRecordsApplied,
    loads: Mapping[str, tuple[str, str]],
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


def _noted(state: State, predecessor: str, op: DeletionsNoted) -> bytes:
    """What was taken over before of that deletion file of the heir."""
    rows = state.deletion_table.unloaded(predecessor, op.path, op.sender)
    return next((row.content for row in rows if row.form == op.form), b"")
