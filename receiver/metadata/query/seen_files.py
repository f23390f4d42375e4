"""Sources of loaded files, and of the time partitions that have some: what readers see.

While the commit that a question is about is the newest, a page is a short look at the sorted index
of files; from then on it comes from the files as they were (`past_files`). Both go by physical
path, so an answer may change from one to the other between two pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from receiver.metadata.model.paths import Nodes, Pattern, device_nodes, directory_nodes
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
from receiver.metadata.state.tables.file_tables.file_index import GroupKey

if TYPE_CHECKING:
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["SHOW_FILES", "SHOW_PARTITIONS", "MeantFiles", "SeenFile", "seen_files", "with_inside"]

_AHEAD: Final = 1 << 12
"""Files of the past that are kept for the next pages: each look at the past goes through all."""


class SeenFile(NamedTuple):
    """A file that readers see at a commit.

    Attributes:
        row: of it, as it is now.
        ended: the commit that took it out of sight since; 0 for none.
        inside: merged files that readers read in its place; see `with_inside`.
    """

    row: FileRow
    ended: int = 0
    inside: tuple[str, ...] = ()


class _Place(NamedTuple):
    """Behind a file of what is wanted, and what comes next as far as that is known."""

    after: str | None = None
    ahead: tuple[SeenFile, ...] = ()
    more: bool = True


def seen_files(
    look: Look, after: str | None = None, within: Callable[[str], bool] | None = None
) -> Iterator[SeenFile]:
    """Files that readers see, in order of their physical paths; commits go on meanwhile.

    Args:
        look: at the state.
        after: only those behind this path.
        within: only those in these directories; see `past_files.files_at`.

    Raises:
        HistoryGoneError: history does not reach back to the commit (any more).
    """
    while within is None:
        with look as (state, at):
            rows = state.file_table.catalogue(after, STEP) if at is None else []
        if at is not None:
            break
        yield from map(SeenFile, rows)
        if len(rows) < STEP:
            return
        after = rows[-1].physical
    past = files_at(look.engine, look.ts, within=within)
    for row in past.visible.behind(after):
        yield SeenFile(row, past.ended.get(row.physical, 0))


def with_inside(look: Look, files: Sequence[SeenFile]) -> list[SeenFile]:
    """The files, with the merged ones that readers of the commit read in place of some.

    Raises:
        HistoryGoneError: history does not reach back to the commit (any more).
    """
    with look as (state, at):
        inside = state.compacted_table.inside([each.row for each in files], at)
    if not inside:
        return list(files)
    return [each._replace(inside=inside.get(each.row.physical, ())) for each in files]


def _next(
    look: Look, place: _Place, meant: MeantFiles, count: int
) -> tuple[list[SeenFile], _Place]:
    """At most `count` files behind a place, and the place behind them; perhaps fewer."""
    if not place.ahead:
        with look as (state, at):
            rows = state.file_table.catalogue(place.after, count) if at is None else []
        if at is None:
            found = [SeenFile(row) for row in rows if meant.has(row)]
            more = len(rows) == count
            return found, _Place(rows[-1].physical if rows else place.after, (), more)
        place = _past(look, place.after, meant)
    taken, ahead = place.ahead[:count], place.ahead[count:]
    after = taken[-1].row.physical if taken else place.after
    return list(taken), _Place(after, ahead, place.more)


def _past(look: Look, after: str | None, meant: MeantFiles) -> _Place:
    past = files_at(look.engine, look.ts, within=meant.may_be_in)
    wanted = filter(meant.has, past.visible.behind(after))
    ahead = [SeenFile(row, past.ended.get(row.physical, 0)) for row in islice(wanted, _AHEAD)]
    return _Place(after, tuple(ahead), next(wanted, None) is not None)


# -- which are meant -------------------------------------------------------------------------------


class MeantFiles:
    """Which files are: of a storage group that is meant, or with a device that is."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._all = pattern == ask.ALL
        self._patterns = (pattern, pattern.below()) if pattern.is_path else (pattern,)
        self._groups: dict[str, tuple[bool, bool]] = {}

    def has(self, row: FileRow) -> bool:
        """Whether a file is meant."""
        if self._all:
            return True
        whole, some = self._of_group(GroupKey.of(row.physical).sg)
        return whole or (some and any(self._fits(device_nodes(each)) for each in row.devices))

    def may_be_in(self, directory: str) -> bool:
        """Whether a file of a directory may be."""
        return self._all or any(self._of_group(directory.split("/", 2)[1]))

    def _of_group(self, group: str) -> tuple[bool, bool]:
        """Whether it is meant, and whether a device in it may be."""
        if group not in self._groups:
            nodes, prefix = directory_nodes(group), self._pattern.prefix
            shared = min(len(nodes), len(prefix))
            self._groups[group] = self._fits(nodes), nodes[:shared] == prefix[:shared]
        return self._groups[group]

    def _fits(self, nodes: Nodes) -> bool:
        return any(each.matches(nodes) for each in self._patterns)


# -- their sources ---------------------------------------------------------------------------------


def _take_files(look: Look, asked: ask.ShowFiles, position: _Place | None, count: int) -> TakenRows:
    taken, place = _next(look, position or _Place(), MeantFiles(asked.pattern), count)
    return TakenRows(with_inside(look, taken), place, bool(place.ahead) or place.more)


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
        " ".join(each.inside) or None,
    )


def _partitions(look: Look, asked: ask.ShowPartitions) -> list[Row]:
    found: dict[tuple[str, str, int], list[int]] = {}
    meant = MeantFiles(asked.pattern)
    within = None if asked.pattern == ask.ALL else meant.may_be_in
    for each in seen_files(look, within=within):
        if not meant.has(each.row):
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
        "inside",
    ),
    _take_files,
    as_they_are,
    _show_file,
)
SHOW_PARTITIONS: Final = short(
    ("storage group", "virtual group", "partition", "files", "size", "created"), _partitions
)
