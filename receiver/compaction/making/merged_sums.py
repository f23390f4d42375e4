"""What the series of a device come to: as a file has them, and as readers get them of several."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from common.tsfile import DataType
from receiver.compaction.making.chunk_runs import MergeSpan
from receiver.compaction.making.point_sums import PointSum, add_points, add_times, join_sum, new_sum
from receiver.compaction.making.taken_pages import sum_of_same

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from common.tsfile import Device
    from receiver.compaction.making.device_rows import DeviceRows
    from receiver.compaction.making.taken_pages import PageMark
    from receiver.points import TsFileReader

__all__ = ["SeriesSums", "add_sums", "differences", "sums_in_file", "sums_of_rows"]

SeriesSums: TypeAlias = dict[str, tuple[int, PointSum]]
"""Of each series of a device its type and what its points come to; of its rows, ``""``, times."""


def sums_in_file(
    reader: TsFileReader,
    device: Device,
    marks: Mapping[int, tuple[PageMark, ...]] = MappingProxyType({}),
) -> SeriesSums:
    """Decode a device of a file, with all checks of the reader.

    Args:
        reader: of the file.
        device: of it.
        marks: of chunks, by their offsets, all of whose pages were taken over: these are compared
            as bytes.

    Raises:
        MergeDiffersError: a page is not the one that was taken over.
        DamagedData, UnsupportedData: see `ChunkReader.blocks`.
    """
    sums: SeriesSums = {}
    for measurement, series in reader.columns(device).items():
        total = new_sum()
        for ref in reader.chunks(device, series):
            if ref.offset in marks:
                join_sum(total, sum_of_same(reader.pages(device, series, ref), marks[ref.offset]))
                continue
            for block in reader.blocks(device, series, ref):
                if block.column is None:
                    add_times(total, block.times)
                else:
                    add_points(total, block.times, block.column)
        sums[measurement] = int(series.data_type), total
    return sums


def sums_of_rows(rows: DeviceRows) -> SeriesSums:
    """Merge a device, and keep nothing of it but that.

    Raises:
        TsferryError, OSError: a file cannot be read.
    """
    forms, span = rows.forms(), MergeSpan()
    sums: SeriesSums = {form.measurement: (form.data_type, new_sum()) for form in forms}
    if not rows.device.aligned:
        for form in forms:
            for times, (column,), _ in rows.points(form, span):
                add_points(sums[form.measurement][1], times, column)
        return sums
    sums[""] = int(DataType.VECTOR), new_sum()
    for times, columns, _ in rows.rows(forms, span):
        add_times(sums[""][1], times)
        for form, column in zip(forms, columns, strict=True):
            add_points(sums[form.measurement][1], times, column)
    return sums


def add_sums(total: SeriesSums, more: SeriesSums) -> None:
    """Add those of another file with other points of the device; the types are those seen first."""
    for name, (code, points) in more.items():
        known = total.setdefault(name, (code, new_sum()))[1]
        join_sum(known, points)


def differences(given: SeriesSums, wanted: SeriesSums) -> Iterator[tuple[str, str]]:
    """In which series of a device a merged file is not what readers get of what it stands for.

    Args:
        given: what the merged file has.
        wanted: what readers get.

    Returns:
        (measurement, how it differs); the measurement is empty for the rows.
    """
    for name in dict.fromkeys((*given, *wanted)):
        one, other = given.get(name), wanted.get(name)
        has = 0 if one is None else int(one[1][0])
        due = 0 if other is None else int(other[1][0])
        if not has and not due:
            continue
        what = "points" if name else "rows"
        if has != due:
            yield name, f"it gives {has} {what}, readers get {due} of the files that it stands for"
        elif one is not None and other is not None and one[0] != other[0]:
            yield name, f"it has type {one[0]}, the files that it stands for {other[0]}"
        elif one is not None and other is not None and not (one[1] == other[1]).all():
            yield name, f"its {has} {what} are not those that readers get of what it stands for"
