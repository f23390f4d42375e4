"""What a worker does: opens the files of its part, and gives record batches as Spark wants them."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from common import __version__
from common.errors import TsferryError, UsageError
from receiver.metadata.model.ranks import Ladder, cut_in, rank_in
from receiver.spark.source.file_opening import FileOpener, MissingFileError
from receiver.spark.source.forms_given.asked_form import form_of
from receiver.spark.source.forms_given.forms import PieceReader
from receiver.spark.source.forms_given.merged_device import DeviceCopy, MergedDevice, Succession
from receiver.spark.source.read_plans.overlapping import MergedFile, MergeSlice
from receiver.spark.source.read_plans.picking import Picker, row_device
from receiver.spark.source.read_plans.slicing import Slice

if TYPE_CHECKING:
    from common.tsfile import Device
    from receiver.metadata.model.ranks import TransferCut
    from receiver.points import TsFileReader
    from receiver.spark.finder import DataFile
    from receiver.spark.source.read_plans.read_plan import ReadPlan

__all__ = ["read_slices"]

_SMALL: Final = 8
"""A batch of this part of the rows that it may have is sent as it is, a smaller one with others."""
_SMALL_FILE: Final = 1 << 20
"""Bytes of a file that is read at once, and together with others."""
_FILES: Final = 128
"""Small files that are open together."""
_HELD: Final = 32 << 20
"""Bytes of them, about."""
_BYTES: Final = 32 << 20
"""Batches that come to so much are not put together."""
_log = logging.getLogger(__name__)


def read_slices(slices: Sequence[Slice | MergeSlice], plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in batches that have exactly the plan's columns.

    Raises:
        TsferryError: a file cannot be read, and the option ``onError`` is ``fail``; names file,
            device, series, chunk and offset, as far as they are known.
        UsageError: this worker has another version of tsferry than the driver.
    """
    if plan.version != __version__:
        raise UsageError(
            f"{sys.executable} on {socket.gethostname()} has tsferry {__version__}, the driver "
            f"{plan.version}: install the same on all of them"
        )
    task = _Task(plan)
    return _gathered(task.rows(slices), task.batch_rows)


class _Task:
    """Reads slice by slice; what cannot be read is dealt with as the options say."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        self._form = form_of(plan)
        self._picker = plan.picker()
        self.batch_rows = self._form.batch_rows

    def rows(self, slices: Sequence[Slice | MergeSlice]) -> Iterator[pa.RecordBatch]:
        """The rows of all slices."""
        slices = sorted(slices, key=lambda each: isinstance(each, MergeSlice))
        with FileOpener(slices, self._plan, self._picker) as opener:
            for run in _runs(slices):
                with ExitStack() as stack:
                    if isinstance(run, MergeSlice):
                        yield from self._merged(run, opener, stack)
                    elif len(run) > 1:
                        yield from self._many(run, opener, stack)
                    else:
                        yield from self._one(run[0], opener, stack)

    def _one(self, part: Slice, opener: FileOpener, stack: ExitStack) -> Iterator[pa.RecordBatch]:
        try:
            file = opener.open(part.file, part, stack)
            devices = _devices(file, part, self._picker)
        except (TsferryError, OSError) as error:
            yield from self._failed(error, part.file.name, None)
            return
        for device in devices:
            yield from self._alone(file, device, part)

    def _many(
        self, run: Sequence[Slice], opener: FileOpener, stack: ExitStack
    ) -> Iterator[pa.RecordBatch]:
        """The rows of small files of which none is cut, device by device."""
        from receiver.spark.source.forms_given.many_files import SmallFiles

        small = SmallFiles()
        found: dict[str, list[DeviceCopy]] = {}
        for part in run:
            try:
                file = opener.open(part.file, part, stack)
                devices = _devices(file, part, self._picker)
            except (TsferryError, OSError) as error:
                yield from self._failed(error, part.file.name, None)
                continue
            small.add(file)
            for device in devices:
                name = row_device(device, part.file.database)
                found.setdefault(name, []).append(DeviceCopy(MergedFile(part.file), file, device))
        for name, copies in found.items():
            apart = tuple(sorted(copies, key=lambda each: each.device.start or 0))
            if len(apart) > 1 and _follow(apart):
                together = MergedDevice(name, apart, run[0].span, Succession(len(apart)))
                batches = self._form.rows_at_once(together, small, self._picker)
                if batches is not None:
                    yield from batches
                    continue
            for merged, file, device in copies:
                yield from self._alone(file, device, Slice(merged.file, run[0].span))

    def _alone(self, file: TsFileReader, device: Device, part: Slice) -> Iterator[pa.RecordBatch]:
        name = row_device(device, part.file.database)
        for piece in self._form.pieces(file, device, part, self._picker):
            yield from self._guarded(piece, part.file.name, name)

    def _merged(
        self, part: MergeSlice, opener: FileOpener, stack: ExitStack
    ) -> Iterator[pa.RecordBatch]:
        """The rows of files that overlap; what cannot be read of them hides nothing."""
        from receiver.spark.source.forms_given.many_files import SmallFiles

        small = SmallFiles()
        copies: dict[str, list[DeviceCopy]] = {}
        for each in part.files:
            try:
                file = opener.open(each.file, part, stack)
            except (TsferryError, OSError) as error:
                if each.counts:  # of others the bytes may be gone: nobody has to have them
                    yield from self._failed(error, each.file.name, None)
                continue
            if _is_small(each.file):
                small.add(file)
            for device in self._picker.devices(each.file, file.tail):
                name = row_device(device, each.file.database)
                if part.span.meets(device.start, device.end) and (
                    part.devices is None or name in part.devices
                ):
                    copies.setdefault(name, []).append(DeviceCopy(each, file, device))
        ladders: dict[tuple[tuple[str, TransferCut | None], ...], Ladder] = {}
        for name, found in copies.items():
            if not any(each.merged.is_fresh for each in found):
                continue
            if len(found) == 1:
                ((merged, file, device),) = found
                yield from self._alone(file, device, Slice(merged.file, part.span))
                continue
            files = [each.merged.file for each in found]
            members = tuple((each.name, cut_in(each.cuts, name)) for each in files)
            if members not in ladders:
                pairs = zip(files, members, strict=True)
                ladders[members] = Ladder([rank_in(each.standing, cut) for each, (_, cut) in pairs])
            together = MergedDevice(name, tuple(found), part.span, ladders[members])
            batches = self._form.rows_at_once(together, small, self._picker)
            if batches is not None:
                yield from batches
                continue
            for piece in self._form.merged_pieces(together, self._picker):
                yield from self._guarded(piece, files[0].name, name)

    def _guarded(self, piece: PieceReader, file: str, device: str) -> Iterator[pa.RecordBatch]:
        try:
            yield from piece()
        except (TsferryError, OSError) as error:
            place = getattr(error, "place", None)  # of several files it names the one
            yield from self._failed(error, file if place is None else place.file, device)

    def _failed(
        self, error: TsferryError | OSError, file: str, device: str | None
    ) -> Iterator[pa.RecordBatch]:
        # A schema that does not fit is the query's fault, whatever shall become of bad files.
        if self._plan.options.on_error == "fail" or isinstance(error, UsageError):
            if isinstance(error, OSError):
                raise MissingFileError(f"{file}: {error}") from error
            raise error
        said = str(error) if file in str(error) else f"{file}: {error}"
        _log.warning("not read: %s", said)
        if self._plan.options.on_error == "row":
            yield self._form.error_row(file, device, said)


def _devices(file: TsFileReader, part: Slice, picker: Picker) -> list[Device]:
    found = picker.devices(part.file, file.tail)
    if part.devices is None:
        return list(found)
    wanted = frozenset(part.devices)
    return [each for each in found if each.name in wanted]


def _runs(slices: Sequence[Slice | MergeSlice]) -> Iterator[MergeSlice | list[Slice]]:
    """The slices in their order, small files that stand together as one run."""
    run: list[Slice] = []
    size = 0
    for part in slices:
        if isinstance(part, Slice) and part.devices is None and _is_small(part.file):
            if run and (part.span != run[0].span or len(run) == _FILES or size > _HELD):
                yield run
                run, size = [], 0
            run.append(part)
            size += part.file.size
            continue
        if run:
            yield run
            run, size = [], 0
        yield part if isinstance(part, MergeSlice) else [part]
    if run:
        yield run


def _is_small(file: DataFile) -> bool:
    """Whether a file may be held whole; of one that is fetched only the ranges are read."""
    return file.size <= _SMALL_FILE and file.local() is not None


def _follow(copies: Sequence[DeviceCopy]) -> bool:
    """Whether files, in the order of their first times, have none of them in common."""
    spans = [(each.device.start, each.device.end) for each in copies]
    return all(
        before[1] is not None and after[0] is not None and before[1] < after[0]
        for before, after in pairwise(spans)
    )


def _gathered(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are worth sending: those of small devices together."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if rows and (rows + batch.num_rows > most or size + batch.nbytes > _BYTES):
            yield from _joined(waiting)
            waiting, rows, size = [], 0, 0
        if not rows and batch.num_rows * _SMALL >= most:
            yield batch
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if waiting:
        yield from _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) == 1:
        yield batches[0]
    else:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()
