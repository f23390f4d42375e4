"""The rows of one device of several files that overlap: each time of a series once.

A value is that of the highest file that has one there; a null is no point, so what lower files
have shows through. A row of a table counts as a row, whatever it holds; one of the tree model is a
time with a value. What was deleted is left out of each file before. Within a file the later chunk
has been preferred already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from common.tsfile import DataType
from receiver.points.batches import Piece, TooMuchError, steps
from receiver.points.columns import arrow_type
from receiver.points.errors import UnsupportedData
from receiver.points.grouping import GROUP_ROWS, LEAST_TIME

if TYPE_CHECKING:
    from common.tsfile import Device
    from receiver.points.decoding import Times
    from receiver.points.reader import TsFileReader

__all__ = ["DeviceMerge", "MergeSource", "MergedColumn", "MergedRows", "Standing"]

_Bools: TypeAlias = npt.NDArray[np.bool_]
_Rows: TypeAlias = npt.NDArray[np.int64]

_CELLS: Final = 4 * 1024 * 1024
"""Rows times columns that are decoded of all files together, unless pages are larger."""
_LEAST_ROWS: Final = 1024


class Standing(Protocol):
    """How the sources stand to each other, by their numbers."""

    @property
    def steps(self) -> Sequence[int] | None:
        """Of each source its place, the lowest first; None where their order has a circle."""

    def top(self, sources: Sequence[int]) -> int:
        """The highest of some sources."""


@dataclasses.dataclass(frozen=True, slots=True)
class MergeSource:
    """A file with rows of the device.

    Attributes:
        file: opened, with what was deleted of it.
        device: as that file has it.
        counts: whether its points are given where it is the highest.
        before: whether they were given already, in the answer that this one is compared with.
    """

    file: TsFileReader
    device: Device
    counts: bool = True
    before: bool = False


class MergedColumn(NamedTuple):
    """A column of the result: a measurement that files have with several types has several."""

    measurement: str
    data_type: int


class MergedRows(NamedTuple):
    """Consecutive rows.

    Attributes:
        times: int64, strictly increasing.
        columns: in the order of `DeviceMerge.columns`.
        origins: for each column the number of the source that each value is of, where that was
            asked for; of a null it means nothing.
        rows: number of the highest source that has the row; likewise.
    """

    times: Times
    columns: tuple[pa.Array, ...]
    origins: tuple[_Rows, ...] = ()
    rows: _Rows | None = None

    def slice(self, low: int, high: int) -> MergedRows:
        """Rows from `low` to before `high`."""
        return MergedRows(
            self.times[low:high],
            tuple(column.slice(low, high - low) for column in self.columns),
            tuple(each[low:high] for each in self.origins),
            None if self.rows is None else self.rows[low:high],
        )


class DeviceMerge:
    """One device of several files.

    Attributes:
        columns: of the result.
    """

    def __init__(
        self,
        sources: Sequence[MergeSource],
        standing: Standing,
        measurements: Sequence[str] | None = None,
        *,
        origins: bool = False,
    ) -> None:
        """Look at what the files have of it.

        If a source is one of `before`, only what differs from the answer of those is given: values
        of the others, where they are the highest and were not the answer.

        Args:
            sources: in any order.
            standing: of the sources.
            measurements: all, if left out; files may lack some.
            origins: say of each value which source it is of.
        """
        self._sources = sources
        self._origins = origins
        self._compares = any(each.before for each in sources)
        self._is_table = any(each.device.is_table for each in sources)
        wanted = None if measurements is None else frozenset(measurements)
        found: dict[str, dict[int, None]] = {}
        self._names: list[dict[str, int]] = []
        for source in sources:
            names = {
                name: int(series.data_type)
                for name, series in source.file.columns(source.device).items()
                if series.data_type != DataType.VECTOR and (wanted is None or name in wanted)
            }
            self._names.append(names)
            for name, code in names.items():
                found.setdefault(name, {})[code] = None
        order = found if measurements is None else [each for each in measurements if each in found]
        self.columns: Final = tuple(
            MergedColumn(name, code) for name in dict.fromkeys(order) for code in found[name]
        )
        self._kinds = [arrow_type(each.data_type, sources[0].file.text) for each in self.columns]
        self._series: list[list[int]] = [
            [at for at, each in enumerate(self.columns) if each.measurement == name]
            for name in dict.fromkeys(each.measurement for each in self.columns)
        ]
        self._counts = np.array([each.counts for each in sources], np.bool_)
        self._before = np.array([each.before for each in sources], np.bool_)
        self._standing = standing

    def rows(
        self, start: int | None = None, end: int | None = None, *, batch_rows: int = GROUP_ROWS
    ) -> Iterator[MergedRows]:
        """The rows, in the order of time.

        Args:
            start: inclusive, in the files' unit.
            end: inclusive.
            batch_rows: at most so many at once.

        Raises:
            DamagedData: see `TsFileReader`.
            UnsupportedData: the same; or pages are so large that those of all files together do
                not fit into memory.
        """
        width = max(1, len(self.columns)) * len(self._sources)
        at_once = min(batch_rows, GROUP_ROWS, max(_LEAST_ROWS, _CELLS // width))
        streams = [self._pieces(at, start, end, at_once) for at in range(len(self._sources))]
        starts = [
            LEAST_TIME if each.device.start is None else each.device.start for each in self._sources
        ]
        try:
            for step in steps(streams, max(1, at_once // 2), starts):
                found = self._step({at: piece for at, piece in enumerate(step) if piece})
                for low in range(0, 0 if found is None else len(found.times), batch_rows):
                    assert found is not None
                    yield found.slice(low, low + batch_rows)
        except TooMuchError:
            reason = f"pages of {len(self._sources)} files that overlap do not fit into memory"
            first = self._sources[0]
            raise UnsupportedData(reason, first.file.place(first.device)) from None

    def _pieces(self, at: int, start: int | None, end: int | None, rows: int) -> Iterator[Piece]:
        """What one file has, with a column for each of the result's that it has."""
        source, names = self._sources[at], list(self._names[at])
        if not names and not self._is_table:
            return
        batches = source.file.read_device(
            source.device, names, start=start, end=end, batch_rows=rows
        )
        for batch in batches:
            yield Piece(batch.column(0).to_numpy(), tuple(batch.columns[1:]))

    def _column(self, at: int, piece: Piece, column: int) -> pa.Array | None:
        name, code = self.columns[column]
        names = self._names[at]
        if names.get(name) != code:
            return None
        return piece.columns[list(names).index(name)]

    # -- one step: all rows up to a time -------------------------------------------------------

    def _step(self, pieces: dict[int, Piece]) -> MergedRows | None:
        if self._compares and not any(self._is_fresh(at) for at in pieces):
            return None
        if len(pieces) == 1:
            ((at, piece),) = pieces.items()
            return self._alone(at, piece)
        return self._together(pieces)

    def _is_fresh(self, at: int) -> bool:
        return bool(self._counts[at] and not self._before[at])

    def _alone(self, at: int, piece: Piece) -> MergedRows | None:
        """Rows whose times no other file has."""
        if not self._counts[at]:
            return None
        found = []
        for number, kind in enumerate(self._kinds):
            column = self._column(at, piece, number)
            found.append(pa.nulls(len(piece), kind) if column is None else column)
        if not self._origins:
            return MergedRows(piece.times, tuple(found))
        here = np.full(len(piece), at, np.int64)
        return MergedRows(piece.times, tuple(found), (here,) * len(found), here)

    def _together(self, pieces: dict[int, Piece]) -> MergedRows | None:
        rows = _SortedRows(pieces, self._standing)
        columns: list[pa.Array] = []
        origins: list[_Rows] = []
        keep = np.zeros(len(rows.times), np.bool_)
        for series in self._series:
            stored = [self._stored(pieces, each) for each in series]
            valid = np.zeros(len(rows.source), np.bool_)
            for each in stored:
                valid |= np.asarray(each.is_valid())[rows.order]
            given = rows.highest(valid & self._counts[rows.source])
            if self._compares:
                self._leave_out(rows, stored, valid, given)
            keep |= given >= 0
            columns += [rows.taken(each, given) for each in stored]
            if self._origins:
                origins += [rows.source[given]] * len(stored)
        top = rows.highest(self._counts[rows.source])
        if self._is_table:
            keep |= self._new_rows(rows, top)
        found = MergedRows(
            rows.times, tuple(columns), tuple(origins), rows.source[top] if self._origins else None
        )
        return _kept(found, keep)

    def _stored(self, pieces: dict[int, Piece], column: int) -> pa.Array:
        kind = self._kinds[column]
        parts = [(piece, self._column(at, piece, column)) for at, piece in pieces.items()]
        return pa.concat_arrays(
            [pa.nulls(len(piece), kind) if each is None else each for piece, each in parts]
        )

    def _leave_out(
        self, rows: _SortedRows, stored: Sequence[pa.Array], valid: _Bools, given: _Rows
    ) -> None:
        """Make those -1 that are no news."""
        before = rows.highest(valid & self._before[rows.source])
        same = np.zeros(len(given), np.bool_)
        for each in stored:
            same |= _equal(rows.taken(each, given), rows.taken(each, before))
        is_old = self._before[rows.source[given]]
        given[same | is_old] = -1

    def _new_rows(self, rows: _SortedRows, top: _Rows) -> _Bools:
        if not self._compares:
            return top >= 0
        return (top >= 0) & (rows.highest(self._before[rows.source]) < 0)


def _kept(found: MergedRows, keep: _Bools) -> MergedRows | None:
    if keep.all():
        return found
    if not keep.any():
        return None
    mask = pa.array(keep)
    return MergedRows(
        found.times[keep],
        tuple(column.filter(mask) for column in found.columns),
        tuple(each[keep] for each in found.origins),
        None if found.rows is None else found.rows[keep],
    )


def _equal(one: pa.Array, other: pa.Array) -> Any:
    """Where two columns have the same value; a NaN is one."""
    same = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        same = pc.or_kleene(same, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return np.asarray(pc.fill_null(same, False))


class _SortedRows:
    """The rows of several pieces in the order of time, those of one time together.

    Attributes:
        times: each once.
        order: where each row stood in the pieces, one behind the other.
        source: of each row.
    """

    def __init__(self, pieces: dict[int, Piece], standing: Standing) -> None:
        every = np.concatenate([piece.times for piece in pieces.values()])
        source = np.concatenate([np.full(len(piece), at, np.int64) for at, piece in pieces.items()])
        place = source if standing.steps is None else np.asarray(standing.steps)[source]
        self._standing = standing
        self.order = np.lexsort((place, every))
        self.source = source[self.order]
        times = every[self.order]
        first = np.ones(len(times), np.bool_)
        np.not_equal(times[1:], times[:-1], out=first[1:])
        self._begins = np.flatnonzero(first)
        self._of_time = np.cumsum(first) - 1
        self.times = times[first]

    def highest(self, counted: _Bools) -> _Rows:
        """Of each time, the row of the highest source among those that count; -1 if none does."""
        numbered = np.where(counted, np.arange(len(counted)), -1)
        last = np.maximum.reduceat(numbered, self._begins)
        if self._standing.steps is None:
            self._settle(counted, last)
        return last

    def _settle(self, counted: _Bools, found: _Rows) -> None:
        """Without an order it depends on which sources have the time."""
        rows = np.flatnonzero(counted)
        several = np.bincount(self._of_time[rows], minlength=len(found)) > 1
        rows = rows[several[self._of_time[rows]]]
        if not len(rows):
            return
        here, column = np.unique(self.source[rows], return_inverse=True)
        at, line = np.unique(self._of_time[rows], return_inverse=True)
        table = np.full((len(at), len(here)), -1, np.int64)
        table[line, column] = rows
        sets, which = np.unique(table >= 0, axis=0, return_inverse=True)
        tops = np.empty(len(sets), np.int64)
        for number, members in enumerate(sets):
            top = self._standing.top(tuple(here[members].tolist()))
            tops[number] = np.searchsorted(here, top)
        found[at] = table[np.arange(len(at)), tops[which.reshape(-1)]]

    def taken(self, stored: pa.Array, rows: _Rows) -> pa.Array:
        """The values of some rows of a column; null for -1."""
        return stored.take(pa.array(self.order[rows], mask=rows < 0))
