"""Which retired files of a partition are to be judged, and with which others: a plain function.

What was found before is judged again only if something that came since touches it: a file with
times where this one alone has a point, or deletions there (whoever decodes finds out).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from common.names import storage_group_of
from common.tsfile import split_database
from common.wire import Propagate
from receiver.metadata.query.applied_deletions import applied_deletions
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.transfer_cuts import TransferCuts
from receiver.superseding.asking import FileAsked, NotesAsked, PartitionAsked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from receiver.metadata.engine import Engine
    from receiver.metadata.model.ranks import TransferCut
    from receiver.metadata.state.deletion_rows import DeletionsRow
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.retired import PartitionKey
    from receiver.superseding.asking import FileProof

__all__ = [
    "DuePartition",
    "JudgedPartition",
    "due_of",
    "file_asked",
    "notes_asked",
    "notes_of",
    "unproved_senders",
]

_CANDIDATES = 4000
"""Of one question: what is found is committed after each, so that a stop costs not much."""


@dataclass
class JudgedPartition:
    """What is known of the retired files of a partition that are not superseded.

    Attributes:
        at: the commit as of which it is known.
        senders: of the retired files.
        found: by physical path.
        kept: how many these are, and their bytes.
        skipped: files (and bytes) of senders whose files nothing is proved of.
        again: some were overtaken by other commits, and are to be looked at again.
    """

    at: int = 0
    senders: frozenset[str] = frozenset()
    found: dict[str, FileProof] = field(default_factory=dict)
    kept: tuple[int, int] = (0, 0)
    skipped: tuple[int, int] = (0, 0)
    again: bool = False


@dataclass(frozen=True)
class DuePartition:
    """What is to be done about a partition.

    Attributes:
        at: the commit as of which this is so.
        senders: of the retired files.
        rows: of all visible files, by physical path.
        asked: the questions, in the order of time.
        kept: what is known already and need not be asked.
        maybe: what stays known of those that the answer leaves out.
        skipped: files (and bytes) of senders whose files nothing is proved of.
    """

    at: int
    senders: frozenset[str]
    rows: dict[str, FileRow]
    asked: list[PartitionAsked]
    kept: dict[str, FileProof]
    maybe: dict[str, FileProof]
    skipped: tuple[int, int]


def unproved_senders(state: State) -> frozenset[str]:
    """Senders of whose files nothing is proved."""
    return frozenset(
        uuid for uuid, row in state.senders.items() if row.propagate is Propagate.NEVER
    )


@dataclass
class _Snapshot:
    """What is taken from the state while it stands still: rows never change."""

    at: int
    rows: list[FileRow]
    retired: list[FileRow]
    skipped: tuple[int, int]
    notes: list[DeletionsRow]
    newest_notes: dict[str, int]
    devices: dict[str, Sequence[str]]
    cuts: dict[str, tuple[TransferCut, ...]]


def _snapshot(state: State, key: PartitionKey) -> _Snapshot:
    rows = state.file_table.partition(*key)
    never = unproved_senders(state)
    ended = [row for row in rows if row.state is FileState.RETIRED]
    retired = [row for row in ended if row.sender not in never]
    skipped = [row for row in ended if row.sender in never]
    senders = {row.sender for row in rows}
    notes, devices = notes_of(state, senders, key.sg)
    cuts = TransferCuts(state.owner_table.moves, state.newest)
    return _Snapshot(
        state.newest,
        rows,
        retired,
        (len(skipped), sum(row.size for row in skipped)),
        notes,
        {each: state.deletion_table.newest(each) for each in senders},
        devices,
        {row.physical: tuple(map(_cut, found)) for row in rows if (found := cuts.of(row))},
    )


def notes_of(
    state: State, senders: Iterable[str], group: str
) -> tuple[list[DeletionsRow], dict[str, Sequence[str]]]:
    """What senders' deletion files say that reaches files of a storage group.

    Returns:
        the rows, and the devices of the files of which these are needed to tell what they name.
    """
    notes = [
        note
        for each in senders
        for note in state.deletion_table.of_sender(each)
        if storage_group_of(note.path) == group  # those of others reach no file of this one
    ]
    older = {note.physical for note in notes if note.form == "mods" and note.physical}
    devices: dict[str, Sequence[str]] = {
        each: state.files[each].devices.names() for each in older if each in state.files
    }
    return notes, devices


def _cut(cut: TransferCut) -> TransferCut:
    return cut._replace(devices=frozenset(split_database(each)[1] for each in cut.devices))


def due_of(
    engine: Engine,
    key: PartitionKey,
    judged: JudgedPartition,
    place: Callable[[FileRow], str | None],
    most_points: int,
) -> DuePartition:
    """Find out what is to be done about a partition.

    Args:
        engine: the metadata engine.
        key: of the partition.
        judged: what is known of it.
        place: where the bytes of a file are.
        most_points: see `PartitionAsked`.
    """
    with engine.reading() as state:
        now = _snapshot(state, key)
    fresh = [row for row in now.rows if row.changed > judged.at]
    touching = _spans(fresh) if judged.found else {}
    anew: list[FileRow] = []
    maybe: dict[str, FileProof] = {}
    kept: dict[str, FileProof] = {}
    for row in now.retired:
        known = judged.found.get(row.physical)
        if known is None or row.changed > judged.at or known.unreadable or _meets(known, touching):
            anew.append(row)
        elif now.newest_notes.get(row.sender, 0) > judged.at:
            maybe[row.physical] = known
        else:
            kept[row.physical] = known
    rows = {row.physical: row for row in now.rows}
    candidates = sorted(
        [*anew, *(rows[each] for each in maybe)], key=lambda row: (row.first or 0, row.physical)
    )
    notes = notes_asked(now.notes, now.devices, now.at)
    asked = [
        _question(candidates[low : low + _CANDIDATES], now, notes, maybe, judged.at, place,
                  most_points)
        for low in range(0, len(candidates), _CANDIDATES)
    ]  # fmt: skip
    senders = frozenset(row.sender for row in now.retired)
    return DuePartition(now.at, senders, rows, asked, kept, maybe, now.skipped)


def _question(
    candidates: Sequence[FileRow],
    now: _Snapshot,
    notes: list[NotesAsked],
    maybe: Mapping[str, FileProof],
    judged_at: int,
    place: Callable[[FileRow], str | None],
    most_points: int,
) -> PartitionAsked:
    """Candidates with all files that have times of a device between the times that they have."""
    spans = _spans(candidates)
    mine = {row.physical for row in candidates}
    files = []
    for row in now.rows:
        cuts = now.cuts.get(row.physical, ())
        if row.physical in mine:
            known = maybe.get(row.physical)
            at = 0 if known is None else judged_at
            exclusive = () if known is None else known.exclusive
            asked = file_asked(row, place(row), cuts)
            files.append(replace(asked, candidate=True, judged=at, exclusive=exclusive))
        elif any(_within(spans, *each) for each in row.devices.ranges()):
            files.append(file_asked(row, place(row), cuts))
    return PartitionAsked(files, notes, most_points)


def file_asked(row: FileRow, path: str | None, cuts: tuple[TransferCut, ...] = ()) -> FileAsked:
    """A file, as a process is asked about it.

    Args:
        row: of the file.
        path: where its bytes are; None if nowhere.
        cuts: where it stands otherwise, in devices that were transferred.
    """
    rank = row.rank
    return FileAsked(
        physical=row.physical,
        path=path,
        sender=row.author,
        size=row.size,
        md5=row.md5,
        series=row.series,
        points=row.points,
        start=row.first,
        end=row.last,
        name=rank.name,
        first=rank.first,
        closed=row.closed,
        last=rank.last,
        loaded=rank.loaded,
        below=rank.below,
        cuts=cuts,
    )


# -- ranges of time by device ------------------------------------------------------------------

_Spans = dict[str, list[tuple[int, int]]]


def _spans(rows: Iterable[FileRow]) -> _Spans:
    """Of each device the ranges that files have, apart from each other and in order.

    All files of a partition are of one database, so devices are called as files call them.
    """
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        for name, first, last in row.devices.ranges():
            found[split_database(name)[1]].append((first, last))
    return {name: _joined(ranges) for name, ranges in found.items()}


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def _within(spans: _Spans, name: str, first: int, last: int) -> bool:
    ranges = spans.get(split_database(name)[1])
    if ranges is None:
        return False
    at = bisect_right(ranges, last, key=lambda each: each[0]) - 1
    return at >= 0 and ranges[at][1] >= first


def _meets(known: FileProof, spans: _Spans) -> bool:
    return bool(spans) and any(
        _within(spans, each.device, each.first, each.last) for each in known.exclusive
    )


# -- deletions ---------------------------------------------------------------------------------


def notes_asked(
    notes: Iterable[DeletionsRow], devices: Mapping[str, Sequence[str]], at: int
) -> list[NotesAsked]:
    """The deletions that readers apply at a commit, one look's at a time; see `notes_of`."""
    made: list[NotesAsked] = []
    for row, content, floor, commit in applied_deletions(notes, at):
        names = devices.get(row.physical or "", ()) if row.form == "mods" else ()
        trees = tuple(each for each in names if not each.startswith("/"))
        made.append(NotesAsked(row.author, row.physical, row.form, content, floor, commit, trees))
    return made
