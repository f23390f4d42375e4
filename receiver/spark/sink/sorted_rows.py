"""Rows of a task, sorted by storage group, partition, device, series and time, in bounded memory.

What comes is kept until it is as much as may be sorted at once; then it is sorted, and lies from
there on in a scratch file, of which the parts that are read are mapped. What fits stays in memory.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

__all__ = ["TIME", "Bucket", "Rows", "SortedSlice", "Sorter"]

TIME: Final = "t"
"""Name of the column of times in what is sorted."""
_BATCH: Final = 1 << 14
"""Rows that stand together in a scratch file."""


class Bucket(NamedTuple):
    """What one file is of: number of its storage group, number of its partition."""

    group: int
    partition: int


class Rows(NamedTuple):
    """Rows as they came.

    Attributes:
        devices: number of the device of each.
        series: number of its series, where a row is a point; else 0.
        times: of them.
        columns: values, by their names.
    """

    devices: npt.NDArray[np.int32]
    series: npt.NDArray[np.int32]
    times: npt.NDArray[np.int64]
    columns: dict[str, pa.Array]


class SortedSlice(NamedTuple):
    """Rows of a device, or of a series of it, in the order of their times.

    Attributes:
        table: that they are in; it has `TIME`, and the columns of values.
        begin: of them.
        end: behind them.
        series: number of the series; 0 where rows are those of a device.
    """

    table: pa.Table
    begin: int
    end: int
    series: int


class Sorter:
    """Takes rows in any order, and gives them by bucket and device."""

    def __init__(
        self,
        scratch: Path,
        limit: int,
        interval: int,
        groups: Callable[[npt.NDArray[np.int32]], npt.NDArray[np.int32]],
    ) -> None:
        """Begin with none.

        Args:
            scratch: a directory for what does not fit.
            limit: bytes of rows that are sorted at once.
            interval: width of a partition, in the unit of the times.
            groups: gives the storage groups of devices.
        """
        self._scratch, self._limit, self._interval = scratch, limit, interval
        self._groups = groups
        self._waiting: list[Rows] = []
        self._bytes = 0
        self._spilled = 0
        self._found: dict[Bucket, dict[int, list[SortedSlice]]] = defaultdict(dict)

    def add(self, rows: Rows) -> None:
        """Take rows."""
        if not len(rows.times):
            return
        self._waiting.append(rows)
        self._bytes += 16 * len(rows.times) + sum(each.nbytes for each in rows.columns.values())
        if self._bytes >= self._limit:
            self._enter(*self._sorted(), spill=True)

    def finish(self) -> dict[Bucket, dict[int, list[SortedSlice]]]:
        """All rows: by bucket, by the number of the device."""
        if self._waiting:
            self._enter(*self._sorted(), spill=False)
        return self._found

    def _sorted(self) -> tuple[pa.Table, list[npt.NDArray[np.int64]]]:
        """What waits, in order, and its keys from the first on."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        devices = np.concatenate([each.devices for each in waiting])
        series = np.concatenate([each.series for each in waiting])
        times = np.concatenate([each.times for each in waiting])
        partitions, groups = np.floor_divide(times, self._interval), self._groups(devices)
        order = np.lexsort((times, series, devices, partitions, groups))
        columns = {
            name: pa.chunked_array([each.columns[name] for each in waiting])
            for name in waiting[0].columns
        }
        table = pa.table({TIME: times, **columns}).take(pa.array(order))
        keys = (groups, partitions, devices, series)
        return table, [each[order].astype(np.int64) for each in keys]

    def _enter(
        self, table: pa.Table, keys: Sequence[npt.NDArray[np.int64]], *, spill: bool
    ) -> None:
        if spill:
            table = self._mapped(table)
        changes = np.zeros(len(table), np.bool_)
        changes[0] = True
        for key in keys:
            changes[1:] |= key[1:] != key[:-1]
        begins = np.flatnonzero(changes)
        ends = np.append(begins[1:], len(table))
        groups, partitions, devices, series = (key[begins].tolist() for key in keys)
        for at, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            bucket = self._found[Bucket(groups[at], partitions[at])]
            bucket.setdefault(devices[at], []).append(SortedSlice(table, begin, end, series[at]))

    def _mapped(self, table: pa.Table) -> pa.Table:
        """The same rows, in a scratch file."""
        path = str(self._scratch / f"{self._spilled}.arrow")
        self._spilled += 1
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=_BATCH)
        return pa.ipc.open_file(pa.memory_map(path)).read_all()
