"""The report's directory: tables, the summary, and the page; each is replaced in one step."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from common.durable import Tree
from common.errors import TsferryError
from receiver.spark.report.page import render
from receiver.spark.report.results import (
    ChunkResult,
    CodecTotal,
    DayCount,
    DeviceSpan,
    Duplicates,
    FileResult,
    FindingRow,
    arrow_schema,
    to_arrow,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from common.durable import WriteFile
    from receiver.spark.report.results import Verification
    from receiver.spark.report.summary import Summary

__all__ = ["write"]


def write(directory: Path, summary: Summary, run: Verification) -> None:
    """Replace the files of a report: seven tables (`.parquet`), `report.json`, `report.html`.

    The page comes last, so who sees it finds the tables of the same run beside it.

    Args:
        directory: made if it is missing; other files in it stay.
        summary: of `run`.
        run: while its Spark session lives: the large tables are fetched batch by batch.

    Raises:
        NoSpaceError, ReadOnlyError, OSError: a file cannot be written; the old one is still there.
    """
    with Tree(directory, create=True) as tree:
        small: tuple[tuple[str, type[Any], Iterable[Any]], ...] = (
            ("files", FileResult, run.files),
            ("findings", FindingRow, run.findings()),
            ("days", DayCount, run.days),
            ("codecs", CodecTotal, run.codecs),
            ("duplicates", Duplicates, run.duplicates),
        )
        for name, kind, rows in small:
            table = to_arrow(kind, iter(rows))
            _table(tree, name, table.schema, iter(table.to_batches()))
        _table(tree, "chunks", arrow_schema(ChunkResult), run.chunks())
        _table(tree, "spans", arrow_schema(DeviceSpan), run.spans())
        tree.write_atomic("report.json", msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
        tree.write_atomic("report.html", render(summary, run).encode())


def _table(tree: Tree, name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Write one table beside its old self and put it in its place, a batch in memory at a time."""
    import pyarrow.parquet as pq

    target = f"{name}.parquet"
    beside = f"{target}.new"
    tree.unlink(beside, sync=False)  # of a run that was cut off
    try:
        with tree.create(beside) as file:
            with pq.ParquetWriter(_Sink(file), schema, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch.cast(schema))
            file.sync()
        tree.rename(beside, target)
    except BaseException:  # a half of a table would keep the disk full
        with suppress(OSError, TsferryError):
            tree.unlink(beside, sync=False)
        raise


class _Sink:
    """What pyarrow needs of a file that is written from begin to end."""

    closed = False

    def __init__(self, file: WriteFile) -> None:
        self._file = file
        self._at = 0

    def write(self, data: bytes) -> int:
        """Write at the end."""
        done = self._file.write(data, at=self._at)
        self._at += done
        return done

    def tell(self) -> int:
        """The bytes written so far."""
        return self._at

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """The file is closed by whoever opened it."""

    def readable(self) -> bool:
        """It is not."""
        return False

    def writable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is not."""
        return False
