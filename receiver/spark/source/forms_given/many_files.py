"""A device that many small files have, decoded of all of them at once.

A file of some kilobytes has a hundred points of a series, and to open its chunks, look at their
headers and give their rows on is then nearly all of the work. A merge knows better
(`receiver.compaction.making.device_rows`): it gathers the chunks of a series from all files, and
decodes and checks them together. Here readers take that way where it gives the very rows that they
would get otherwise. Where it may not, or where something cannot be read, files are read as they are
without it, which also says what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from common.errors import TsferryError
from common.tsfile import Compression, DataType
from receiver.compaction.making.chunk_runs import MergeSpan
from receiver.compaction.making.device_rows import DeviceRows, MergedPart
from receiver.compaction.making.survey import SeenDevice, SeenSeries
from receiver.points.batches import Piece, TooMuchError, cut, joined_on_time
from receiver.points.columns import InvalidValue, arrow_type
from receiver.points.index_tables import ChunkTable, chunk_table
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.value_encoding import SAFE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from common.tsfile import Device
    from receiver.points import TsFileReader
    from receiver.points.columns import TextForm
    from receiver.points.encodings import Bytes

__all__ = ["DeviceTogether", "SmallFiles"]

_Places = npt.NDArray[np.int64]

_MEMORY: Final = 64 << 20
"""Bytes that decoded points of a device take, about; one that has more is read piece by piece."""
_MOST_HELD: Final = 64 << 20
"""Bytes of small files that are in memory; what others have is read of the files."""
_MOST_POINTS: Final = 1 << 22
"""Of a device that are held until all of them are decoded."""
_AHEAD: Final = 8192
"""Rows of a series that are held where series have times of their own."""
_CELLS: Final = 1 << 23
"""That one step makes of these, where no two series have a time in common."""


class SmallFiles:
    """Small files of a task that are open together; what is before their index is in memory."""

    def __init__(self) -> None:
        self._readers: list[TsFileReader] = []
        self._numbers: dict[int, int] = {}
        self._densities: list[float] = []
        self._room = _MOST_HELD
        self._content: tuple[Bytes, _Places, _Places] | None = None

    def add(self, reader: TsFileReader) -> None:
        """Take one more, if there is room; it stays open for as long as this is used."""
        self._room -= reader.tail.meta_offset
        if self._room < 0:
            return
        self._numbers[id(reader)] = len(self._readers)
        self._readers.append(reader)
        points = sum(each.point_count + each.rows for each in reader.tail.devices)
        self._densities.append(reader.tail.meta_offset / max(1, points))

    def together(
        self, copies: Sequence[tuple[TsFileReader, Device]], steps: Sequence[int]
    ) -> DeviceTogether | None:
        """A device that some of them have; None where each has to be read by itself.

        Args:
            copies: files, and the device as these have it.
            steps: of each its place, the lowest first. Of files that have no time of it in common
                any order will do.
        """
        numbers = [self._numbers.get(id(reader)) for reader, _ in copies]
        known = [each for each in numbers if each is not None]
        if len(known) < len(numbers):
            return None
        seen = _seen_together(known, [device for _, device in copies])
        if seen is None:
            return None
        pairs = zip(known, (device for _, device in copies), strict=True)
        seen.size = sum(
            self._densities[at] * (device.point_count + device.rows) for at, device in pairs
        )
        return DeviceTogether(self, seen, dict(zip(known, steps, strict=True)))

    def open(self, number: int, together: int = 1) -> _Opened:
        """See `receiver.compaction.making.device_chunks.MergeFiles`."""
        return _Opened(self._readers[number])

    def gather(
        self, numbers: _Places, offsets: _Places, likely: _Places
    ) -> tuple[Bytes, _Places, _Places]:
        """See there."""
        if self._content is None:
            parts = [each.data(0, each.tail.meta_offset) for each in self._readers]
            sizes = np.array([len(each) for each in parts], np.int64)
            ends = np.cumsum(sizes, dtype=np.int64)
            self._content = np.frombuffer(b"".join(parts), np.uint8), ends - sizes, ends
        content, begins, ends = self._content
        return content, begins[numbers] + offsets, ends[numbers]


class DeviceTogether:
    """A device in several small files.

    Attributes:
        types: of its series, by name.
    """

    def __init__(self, files: SmallFiles, seen: SeenDevice, steps: Mapping[int, int]) -> None:
        self._files, self._seen, self._steps = files, seen, steps
        self._room = _MEMORY
        self.types = {name: each.data_type for name, each in seen.series.items() if name}

    def read(
        self,
        names: Sequence[str],
        span: tuple[int | None, int | None],
        text: TextForm,
        batch_rows: int,
    ) -> list[pa.RecordBatch] | None:
        """Its rows, each time once: of files that have the same the highest one's.

        Args:
            names: of the series that are wanted, in the order of the columns.
            span: times, inclusive; None without a limit.
            text: the Arrow form of texts.
            batch_rows: at most so many rows a batch.

        Returns:
            Batches with ``time`` and a column a series, as of `TsFileReader.read_device`. None
            where that is more than is to be held, or something could not be read.
        """
        if self._seen.points > _MOST_POINTS:
            return None
        forms = [_form(name, self.types[name]) for name in names]
        fields = [pa.field(name, arrow_type(self.types[name], text)) for name in names]
        schema = pa.schema([pa.field("time", pa.int64()), *fields])
        within = MergeSpan(*span)
        try:
            rows = DeviceRows(self._files, _Standing(self._steps), self._seen, _MEMORY)
            if self._seen.aligned:
                pieces = _pieces(rows.rows(forms, within), text)
            else:
                ahead = max(1, min(_AHEAD, _CELLS // max(1, len(forms)) ** 2))
                sources = [_pieces(rows.points(form, within), text, ahead) for form in forms]
                pieces = joined_on_time(sources, [each.type for each in fields], ahead=ahead)
            return self._held(cut(pieces, schema, rows=batch_rows))
        except (TsferryError, OSError, InvalidValue, TooMuchError):
            return None  # read by itself, the file that it is about says so

    def _held(self, batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch] | None:
        """All of them; None where these and those of before are more than is to be held."""
        found = []
        for batch in batches:
            self._room -= batch.nbytes
            if self._room < 0:
                return None
            found.append(batch)
        return found


class _Opened(NamedTuple):
    reader: TsFileReader


class _Standing:
    """How files stand to each other, where that has no circle."""

    def __init__(self, steps: Mapping[int, int]) -> None:
        self._steps = steps

    def order(self, numbers: Sequence[int]) -> list[int]:
        return [self._steps[each] for each in numbers]

    def ladder(self, numbers: Sequence[int]) -> _Sorted:
        return _Sorted(self.order(numbers))


class _Sorted(NamedTuple):
    steps: Sequence[int]

    def top(self, sources: Sequence[int]) -> int:
        return max(sources, key=self.steps.__getitem__)


def _seen_together(numbers: Sequence[int], devices: Sequence[Device]) -> SeenDevice | None:
    """What files have of a device; None where they contradict, or have what no merge reads."""
    first = devices[0]
    found = SeenDevice(first)
    tables: list[ChunkTable] = []
    for number, device in zip(numbers, devices, strict=True):
        alike = (device.aligned, device.is_table) == (first.aligned, first.is_table)
        if not alike or not device.series_count:
            return None
        table = chunk_table(device)
        tables.append(table)
        found.files.append(number)
        found.points += device.point_count + device.rows
        for name, code in zip(table.names, table.types, strict=True):
            known = found.series.setdefault(name, SeenSeries(code, number, None))
            if known.data_type != code or (code not in SAFE and code != DataType.VECTOR):
                return None
    if found.aligned and "" not in found.series:
        return None
    found.tables = tables
    return found


def _form(name: str, code: int) -> SeriesForm:
    """How it would be written is of no account: only its name and type are looked at."""
    return SeriesForm(name, code, SAFE[code], Compression.UNCOMPRESSED)


def _pieces(
    parts: Iterable[MergedPart], text: TextForm, rows: int | None = None
) -> Iterator[Piece]:
    for part in parts:
        piece = Piece(part.times, tuple(each.to_arrow(text) for each in part.columns))
        most = max(1, len(piece)) if rows is None else rows
        for low in range(0, len(piece), most):
            yield piece.slice(low, low + most)
