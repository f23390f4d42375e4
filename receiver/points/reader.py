"""A TsFile opened for its points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from common.tsfile import Device
from receiver.points import rows, whole_chunks
from receiver.points.chunk_reader import ChunkReader
from receiver.points.chunks import ChunkSummary
from receiver.points.errors import DataError
from receiver.points.grouping import GROUP_ROWS

__all__ = ["TsFileReader"]


class TsFileReader(ChunkReader):
    """Series, devices and sums of a file; see `ChunkReader` for how it is opened."""

    def summaries(
        self, device: Device, *, observe: whole_chunks.Observer | None = None
    ) -> Iterator[ChunkSummary | DataError]:
        """Decode all chunks of a device in bounded memory, check them, say what each comes to.

        The time chunks of an aligned device come among them, measurement ``""``. What is damaged
        or not supported yields its error in place of its summary, and the rest goes on; so does a
        series whose chunks do not come to what the index says of the series.

        Args:
            device: of this file.
            observe: is told what passes by, block for block, before a chunk's summary is yielded.
        """
        return whole_chunks.summaries(self, device, observe)

    # points: in the order of time, without what was deleted

    def read_series(
        self,
        device: Device | str,
        measurement: str,
        *,
        start: int | None = None,
        end: int | None = None,
        batch_rows: int = GROUP_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """The points of one series as batches of ``time`` (int64) and ``value``.

        Args:
            device: or its name.
            measurement: of it.
            start: time of the first point, inclusive, in the file's unit.
            end: time of the last point, inclusive.
            batch_rows: at most so many points a batch.

        Raises:
            KeyError: there is no such series.
        """
        found = self.device(device) if isinstance(device, str) else device
        return rows.read_series(self, found, measurement, start, end, batch_rows)

    def read_device(
        self,
        device: Device | str,
        measurements: Sequence[str] | None = None,
        *,
        start: int | None = None,
        end: int | None = None,
        batch_rows: int = GROUP_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one device: ``time`` (int64), then one column a measurement.

        A row has a value in at least one of the columns; those of a table-model device may have
        none, as in the database.

        Args:
            device: or its name.
            measurements: all, in the file's order, if left out.
            start: inclusive, in the file's unit.
            end: inclusive.
            batch_rows: at most so many rows a batch.

        Raises:
            KeyError: there is no such series.
        """
        found = self.device(device) if isinstance(device, str) else device
        return rows.read_device(self, found, measurements, start, end, batch_rows)
