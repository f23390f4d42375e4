"""Sources of loaded files, and of the time partitions that have some: what readers see.

While the commit that a question is about is the newest, a page is a short look at the sorted index
of files; from then on it comes from the files as they were (`past_files`). Both go by physical
path, so an answer may change from one to the other between two pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from receiver.metadata.model.paths import ROOT, Nodes, Pattern, device_nodes
from receiver.metadata.query import questions as ask
from receiver.metadata.query.past_files import files_at
from receiver.metadata.query.row_source import (
    STEP,
    LabelsAt,
    Look,
    Row,
    RowSource,
    TakenRows,
    as_they_are,
    short,
)
from receiver.metadata.state.tables.files import GroupKey

if TYPE_CHECKING:
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["SHOW_FILES", "SHOW_PARTITIONS", "SeenFile", "seen_files"]

_AHEAD: Final = 1 << 12
"""Files of the past that are kept for the next pages: each look at the past goes through all."""


class SeenFile(NamedTuple):
    """A file that readers see at a commit.

    Attributes:
        row: of it, as it is now.
        ended: the commit that took it out of sight since; 0 for none.
    """

    row: FileRow
    ended: int = 0


class _Place(NamedTuple):
    """Behind a file of what is wanted, and what comes next as far as that is known."""

    after: str | None = None
    ahead: tuple[SeenFile, ...] = ()
    more: bool = True


def seen_files(look: Look, after: str | None = None) -> Iterator[SeenFile]:
    """Files that readers see, in order of their physical paths; commits go on meanwhile.

    Args:
        look: at the state.
        after: only those behind this path.

    Raises:
        HistoryGoneError: history does not reach back to the commit (any more).
    """
    place = _Place(after)
    while place.ahead or place.more:
        found, place = _next(look, place, lambda _: True, STEP)
        yield from found


def _next(
    look: Look, place: _Place, wanted: Callable[[FileRow], bool], count: int
) -> tuple[list[SeenFile], _Place]:
    """At most `count` files behind a place, and the place behind them; perhaps fewer."""
    if not place.ahead:
        with look as (state, at):
            rows = state.file_table.catalogue(place.after, count) if at is None else []
        if at is None:
            found = [SeenFile(row) for row in rows if wanted(row)]
            more = len(rows) == count
            return found, _Place(rows[-1].physical if rows else place.after, (), more)
        place = _past(look, place.after, wanted)
    taken, ahead = place.ahead[:count], place.ahead[count:]
    after = taken[-1].row.physical if taken else place.after
    return list(taken), _Place(after, ahead, place.more)


def _past(look: Look, after: str | None, wanted: Callable[[FileRow], bool]) -> _Place:
    past = files_at(look.engine, look.ts)
    ahead: list[SeenFile] = []
    for row in past.visible:
        if (after is None or row.physical > after) and wanted(row):
            if len(ahead) == _AHEAD:
                return _Place(after, tuple(ahead), True)
            ahead.append(SeenFile(row, past.ended.get(row.physical, 0)))
    return _Place(after, tuple(ahead), False)


# -- which are meant -------------------------------------------------------------------------------


def _meant(pattern: Pattern) -> Callable[[FileRow], bool]:
    """Whether a file is of a storage group that is meant, or has a device that is."""
    if pattern == ask.ALL:
        return lambda _: True
    patterns = (pattern, pattern.below()) if pattern.is_path else (pattern,)
    groups: dict[str, tuple[bool, bool]] = {}

    def fits(nodes: Nodes) -> bool:
        return any(each.matches(nodes) for each in patterns)

    def of_group(group: str) -> tuple[bool, bool]:
        """Whether it is meant, and whether a device in it may be."""
        nodes = _group_nodes(group)
        shared = min(len(nodes), len(pattern.prefix))
        return fits(nodes), nodes[:shared] == pattern.prefix[:shared]

    def is_meant(row: FileRow) -> bool:
        group = GroupKey.of(row.physical).sg
        if group not in groups:
            groups[group] = of_group(group)
        whole, some = groups[group]
        return whole or (some and any(fits(device_nodes(each)) for each in row.devices))

    return is_meant


def _group_nodes(group: str) -> Nodes:
    """Where a storage group stands, by its directory's name; a database of tables has no root."""
    return device_nodes(group) if group.split(".", 1)[0] == ROOT else (ROOT, f"/{group}")


# -- their sources ---------------------------------------------------------------------------------


def _take_files(look: Look, asked: ask.ShowFiles, position: _Place | None, count: int) -> TakenRows:
    taken, place = _next(look, position or _Place(), _meant(asked.pattern), count)
    return TakenRows(taken, place, bool(place.ahead) or place.more)


def _show_file(each: SeenFile, _: LabelsAt) -> Row:
    row, key = each.row, GroupKey.of(each.row.physical)
    return (
        row.physical,
        key.sg,
        int(key.partition),
        row.size,
        row.points,
        len(row.devices),
        row.first,
        row.last,
        row.created,
        each.ended or None,
        row.sender,
        row.path,
    )


def _partitions(look: Look, asked: ask.ShowPartitions) -> list[Row]:
    found: dict[tuple[str, str, int], list[int]] = {}
    is_meant = _meant(asked.pattern)
    for each in seen_files(look):
        if not is_meant(each.row):
            continue
        key = GroupKey.of(each.row.physical)
        sums = found.setdefault((key.sg, key.vsg, int(key.partition)), [0, 0, each.row.created])
        sums[0] += 1
        sums[1] += each.row.size
        sums[2] = min(sums[2], each.row.created)
    return [(*key, *sums) for key, sums in sorted(found.items())]


SHOW_FILES: Final = RowSource(
    (
        "file",
        "storage group",
        "partition",
        "size",
        "points",
        "devices",
        "first time",
        "last time",
        "created",
        "deleted",
        "sender",
        "path",
    ),
    _take_files,
    as_they_are,
    _show_file,
)
SHOW_PARTITIONS: Final = short(
    ("storage group", "virtual group", "partition", "files", "size", "created"), _partitions
)
