"""The outputs of a merge: written beside, decoded again and compared, and only then given names."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from common.digests import md5
from common.durable import Closing, temporary_name
from common.tsfile import DataType, Tail, read_tail
from common.tsfile.byte_source import source_of
from common.tsfile.device_names import device_segments
from receiver.compaction.making.merged_sums import SeriesSums, sums_in_file
from receiver.compaction.making.point_sums import PointSum, add_points, add_times, new_sum
from receiver.compaction.making.taken_pages import PageMark, taken_pages, taken_rows
from receiver.compaction.merge_pace import PacedSource
from receiver.compaction.worth_merging.merge_asked import MergeDiffersError, MergeOutput
from receiver.metadata.model.records.record_parts import DeviceRange
from receiver.points import TsFileReader
from receiver.writing.tsfile_writer import TsFileWriter

if TYPE_CHECKING:
    from common.durable import Tree
    from common.tsfile.byte_source import ByteSource
    from receiver.compaction.making.chunk_runs import MergeSpan
    from receiver.compaction.making.device_rows import DeviceRows
    from receiver.compaction.making.survey import Survey
    from receiver.compaction.merge_pace import MergePace
    from receiver.compaction.worth_merging.merge_asked import MergeAsked

__all__ = ["MergeOutputs"]


class MergeOutputs(Closing):
    """Files that are being written, one after the other; closed before the end none stays."""

    def __init__(self, tree: Tree, asked: MergeAsked, seen: Survey, pace: MergePace) -> None:
        """Write nothing yet.

        Args:
            tree: the directory.
            asked: says how they are called, and where each ends.
            seen: what goes into them.
            pace: of writing, and of reading it again.
        """
        self._tree, self._asked, self._seen, self._pace = tree, asked, seen, pace
        self._output: _Output | None = None
        self._done: list[MergeOutput] = []
        self._named: list[str] = []
        self._ended = False

    def add(self, rows: DeviceRows, span: MergeSpan, *, whole: bool) -> None:
        """Write rows of a device.

        Args:
            rows: of it.
            span: times.
            whole: whether the device ends with them; otherwise its others go into other outputs.
        """
        if self._output is None:
            self._output = _Output(self._tree, self._seen, self._pace)
        self._output.add(rows, span)
        if not whole or self._output.size >= self._asked.target_bytes:
            self._finish()

    def cut(self) -> None:
        """What follows goes into other outputs: its times are of another time partition."""
        self._finish()

    def end(self) -> tuple[MergeOutput, ...]:
        """Finish the last one; from now on they stay."""
        self._finish()
        self._ended = True
        return tuple(self._done)

    def close(self) -> None:
        """Leave nothing, unless the end was reached."""
        if self._output is not None:
            self._output.drop()
        if not self._ended:
            for name in self._named:
                with suppress(FileNotFoundError):
                    self._tree.unlink(name)

    def _finish(self) -> None:
        output, self._output = self._output, None
        if output is None:
            return
        name = f"{self._asked.name}-{len(self._done) + 1}.tsfile"
        try:
            tail = output.finish(name)
            if tail is None:
                return
            self._named.append(name)
            output.give_name(name)
        finally:
            output.drop()
        assert tail.first_time is not None
        assert tail.last_time is not None
        database = self._asked.database
        self._done.append(
            MergeOutput(
                path=str(self._tree.path / name),
                size=tail.size,
                md5=output.md5,
                version=self._seen.version,
                series=tail.series_count,
                points=tail.point_count,
                first=tail.first_time,
                last=tail.last_time,
                devices=tuple(
                    DeviceRange(each.name_in(database), each.start, each.end)
                    for each in tail.devices
                ),
            )
        )


class _Output:
    """One file."""

    def __init__(self, tree: Tree, seen: Survey, pace: MergePace) -> None:
        self._tree, self._seen, self._pace = tree, seen, pace
        self._temporary = temporary_name()
        self._file = tree.create(self._temporary)
        self._has_name = False
        self._md5 = md5()
        self._writer = TsFileWriter(self._put, version=seen.version, tables=seen.tables)
        self._sums: dict[str, SeriesSums] = {}

    @property
    def size(self) -> int:
        return self._writer.position

    @property
    def md5(self) -> str:
        return self._md5.hexdigest()

    def _put(self, content: bytes) -> None:
        self._pace.take(len(content))
        self._md5.update(content)
        self._file.write(content)

    def add(self, rows: DeviceRows, span: MergeSpan) -> None:
        device, version = rows.device, self._seen.version
        segments = device.segments if device.is_table else device_segments(device.name, version)
        sums = _written_aligned if device.aligned else _written_plain
        found = sums(self._writer, segments, rows, span)
        if found:
            self._sums[device.name] = found

    def finish(self, name: str) -> Tail | None:
        """Flush and compare it; None if it has no row.

        Raises:
            MergeDiffersError: it is not what was merged.
        """
        self._writer.finish()
        self._file.sync()
        if not self._sums:
            return None
        fd = self._tree.open_read(self._temporary)
        try:
            source = PacedSource(source_of(fd), self._pace)
            tail = read_tail(source)
            _compare(source, tail, self._sums, name, self._writer.marks)
        finally:
            os.close(fd)
        return tail

    def give_name(self, name: str) -> None:
        """Give it its name."""
        self._file.close()
        self._tree.rename(self._temporary, name)
        self._has_name = True

    def drop(self) -> None:
        """Leave nothing of it that has no name."""
        self._file.close()
        if not self._has_name:
            with suppress(FileNotFoundError):
                self._tree.unlink(self._temporary)


def _written_plain(
    writer: TsFileWriter, segments: tuple[str | None, ...], rows: DeviceRows, span: MergeSpan
) -> SeriesSums:
    sums: SeriesSums = {}
    with writer.plain_device(segments) as target:
        for form in rows.forms():
            total = new_sum()
            for times, (column,), stored in rows.points(form, span):
                if stored:
                    pages = taken_pages(stored[0], times, column, total)
                    target.take(form, times, column, pages)
                else:
                    add_points(total, times, column)
                    target.write(form, times, column)
            if total[0]:
                sums[form.measurement] = form.data_type, total
    return sums


def _written_aligned(
    writer: TsFileWriter, segments: tuple[str | None, ...], rows: DeviceRows, span: MergeSpan
) -> SeriesSums:
    forms = rows.forms()
    sums: SeriesSums = {"": (int(DataType.VECTOR), new_sum())}
    sums |= {form.measurement: (form.data_type, new_sum()) for form in forms}
    with writer.aligned_device(segments, forms, compression=rows.time_compression()) as target:
        for times, columns, stored in rows.rows(forms, span):
            if stored:
                totals = [total for _, total in sums.values()]
                target.take(times, columns, taken_rows(stored, times, columns, totals))
                continue
            add_times(sums[""][1], times)
            for form, column in zip(forms, columns, strict=True):
                add_points(sums[form.measurement][1], times, column)
            target.write(times, columns)
    return sums if sums[""][1][0] else {}


# -- comparing ---------------------------------------------------------------------------------


def _compare(
    source: ByteSource,
    tail: Tail,
    merged: dict[str, SeriesSums],
    name: str,
    marks: dict[int, tuple[PageMark, ...]],
) -> None:
    """Read all of a file by the readers' way, and compare each series with what was merged.

    Chunks all of whose pages were taken over are compared as bytes (``taken_pages``), others are
    decoded.
    """
    left = dict(merged)
    with TsFileReader(source, name=name, text="binary", tail=tail) as reader:
        for device in tail.devices:
            wanted, found = left.pop(device.name, {}), sums_in_file(reader, device, marks)
            for series in dict.fromkeys((*wanted, *found)):
                if not _is_same(wanted.get(series), found.get(series)):
                    raise MergeDiffersError(
                        f"{name}: device {device.name}, series {series!r}: what was written is "
                        "not what was merged; nothing of it stays"
                    )
    if left:
        raise MergeDiffersError(f"{name}: device {next(iter(left))} is not in it")


def _is_same(one: tuple[int, PointSum] | None, other: tuple[int, PointSum] | None) -> bool:
    if one is None or other is None:
        return False
    return one[0] == other[0] and bool((one[1] == other[1]).all())
