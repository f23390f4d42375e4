"""The classes that Spark knows: the source ``tsfile`` and its reader; its sink."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark import __version__ as version
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from common.errors import UsageError
from receiver.spark.source.read_plans.partition import TsFilePartition
from receiver.spark.worker_garbage import keep_modules

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceWriter
    from pyspark.sql.types import StructType

    from receiver.spark.source.read_plans.read_plan import ReadPlan
    from receiver.spark.source.read_plans.result_columns import ResultColumn
    from receiver.spark.source.read_plans.source_options import SourceOptions

__all__ = ["TsFileBatchReader", "TsFileSource", "register"]

_OPTIONS = "tsferry.options"
"""Key in the metadata of the first column of a table."""
_SAFE_SINCE = 5
"""Major version of Spark that keeps filters within their scan; see `TsFileBatchReader`."""


def register(spark: SparkSession) -> None:
    """Make ``tsfile`` known to a session, where Spark did not find it by itself."""
    spark.dataSource.register(TsFileSource)


class TsFileSource(DataSource):
    """``spark.read.format("tsfile")``; options and columns are in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """How queries call it."""
        return "tsfile"

    def schema(self) -> StructType:
        """The columns, from the options or from what the files hold.

        Raises:
            UsageError: an option is wrong, or the columns of the files contradict each other.
        """
        from receiver.spark.source.inferring import columns_of

        found = self._with_options(_struct(columns_of(self._parsed())))
        keep_modules()
        return found

    def reader(self, schema: StructType) -> TsFileBatchReader:
        """A reader of the files that the options name.

        Raises:
            UsageError: an option is wrong or of streams alone, or a column cannot be had.
        """
        from receiver.spark.source.read_plans.source_options import refuse_stream_options

        given = self._given(schema)
        refuse_stream_options(given)
        return TsFileBatchReader(_read_plan(_parse(given), schema), _tags(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of what a receiver loads from now on.

        Raises:
            UsageError: an option is wrong, or there is no catalogue to follow.
        """
        try:
            from receiver.spark.source.streaming import TsFileStreamReader
        except ImportError as error:
            raise UsageError(f"streams of tsfile need Spark 4.2 or later ({error})") from error

        return TsFileStreamReader(_read_plan(_parse(self._given(schema)), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of rows to a receiver, as one load of it.

        Raises:
            UsageError: an option or a column is wrong.
            TsferryError: the receiver refuses it.
        """
        from receiver.spark.sink.batch_writer import planned_writer

        if overwrite:
            raise UsageError(
                "mode overwrite: a write takes nothing away; expected mode append, and option "
                "onDuplicate for points that are there already"
            )
        return planned_writer(dict(self.options), schema)

    def _parsed(self) -> SourceOptions:
        return _parse(dict(self.options))

    # -- tables of Spark's catalogue -------------------------------------------------------------

    def _with_options(self, schema: StructType) -> StructType:
        """The schema of a table, with the options: Spark keeps that, and hands over only that.

        Raises:
            UsageError: a token stands among them; everybody who may see the table would read it.
        """
        from receiver.spark.source.read_plans.source_options import without_properties

        given = dict(self.options)
        kept = without_properties(given)
        if kept == given or not schema.fields:
            return schema
        if any(name.lower() == "token" for name in kept):
            raise UsageError("option token: expected tokenFile in a table, which keeps its options")
        first = schema.fields[0]
        first.metadata = {**(first.metadata or {}), _OPTIONS: json.dumps(kept)}
        return schema

    def _given(self, schema: StructType) -> dict[str, str]:
        """The options of a query; those that a table was made with stand in its schema.

        Raises:
            UsageError: there are none at all.
        """
        given = dict(self.options)
        for each in schema.fields:
            if _OPTIONS in (each.metadata or {}):
                names = {name.lower() for name in given}
                made = json.loads(each.metadata[_OPTIONS])
                return {k: v for k, v in made.items() if k.lower() not in names} | given
        if not given:
            raise UsageError(
                "no options have come: Spark hands those of a table over only if CREATE TABLE "
                "names no columns (leave them out, or use CREATE TEMPORARY VIEW)"
            )
        return given


class _Push:
    """`pushFilters` of a reader, which Spark takes for not implemented where it is switched off.

    Spark refuses a source that can push filters as long as its setting for that is off, which is
    its default; it knows such a source by the ``__func__`` of that method. Ours then reads without.
    """

    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", lambda: None))

    def __init__(self, reader: TsFileBatchReader) -> None:
        self._reader = reader

    def __call__(self, filters: Sequence[Any]) -> Iterable[Any]:
        return self._reader.push(filters)


class TsFileBatchReader(DataSourceReader):
    """Plans the tasks of a batch query, and reads in each.

    Filters are taken over only where that is safe, or is asked for. Up to 4.3 Spark keeps what was
    planned with the filters of one query and uses it for the next query of the same DataFrame or
    view, and for both branches of a union: they get too few rows, without a word (mended on the
    way to 5.0). The options select as much, and always right.
    """

    def __init__(self, plan: ReadPlan, tags: frozenset[str]) -> None:
        """Make a reader; `tags` are the names of columns that are tags."""
        self._plan = plan
        self._tags = tags

    @property
    def pushFilters(self) -> _Push:
        """Takes filters over; see `_Push`."""
        return _Push(self)

    def push(self, filters: Sequence[Any]) -> list[Any]:
        """Take over what can be decided by time, device, measurement and tags.

        Returns:
            the filters that Spark has to apply.
        """
        from receiver.spark.source.inferring import constant_columns

        options = self._plan.options
        if options.push_filters == "false" or (
            options.push_filters == "auto" and int(version.partition(".")[0]) < _SAFE_SINCE
        ):
            return list(filters)
        selection, left = self._plan.selection.pushed(
            filters, time=options.time_column, constant=constant_columns(options, self._tags)
        )
        self._plan = replace(self._plan, selection=selection)
        # A row that stands for an error has NULL where other rows have what was asked for.
        return list(filters) if options.on_error == "row" else left

    def partitions(self) -> list[InputPartition]:
        """The tasks; none has nothing to do, unless there is nothing to do at all."""
        from receiver.spark.source.crowding import report_crowded
        from receiver.spark.source.inferring import list_sources, read_tail_of
        from receiver.spark.source.read_plans.slicing import overlapping_in, plan

        options = self._plan.options
        files = list_sources(options)
        picker = self._plan.picker()
        parts = plan(
            files,
            self._plan.selection.span,
            options.partition_bytes,
            picker,
            read_tail_of,
            merge=options.merge,
        )
        report_crowded(options, filter(picker.takes_file, files), overlapping_in(parts))
        keep_modules()
        return [TsFilePartition(each) for each in parts] or [TsFilePartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, as record batches."""
        assert isinstance(partition, TsFilePartition)
        from receiver.spark.source.slice_reader import read_slices

        yield from read_slices(partition.slices, self._plan)
        keep_modules()


# -- schemas -------------------------------------------------------------------------------------


def _parse(given: dict[str, str]) -> SourceOptions:
    from receiver.spark.source.read_plans.source_options import parse_options

    return parse_options(given)


def _struct(columns: Sequence[ResultColumn]) -> StructType:
    from pyspark.sql import types

    kinds: dict[str, types.DataType] = {
        "boolean": types.BooleanType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "float": types.FloatType(),
        "double": types.DoubleType(),
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "date": types.DateType(),
    }
    return types.StructType(
        [
            types.StructField(each.name, kinds[each.type], True, dict(each.metadata))
            for each in columns
        ]
    )


def _tags(schema: StructType) -> frozenset[str]:
    from receiver.spark.value_types import TAG_KEY

    return frozenset(each.name for each in schema.fields if TAG_KEY in (each.metadata or {}))


def _read_plan(options: SourceOptions, schema: StructType) -> ReadPlan:
    from receiver.spark.source.inferring import plan_of
    from receiver.spark.source.read_plans.result_columns import ResultColumn

    columns = [ResultColumn(each.name, each.dataType.simpleString()) for each in schema.fields]
    return plan_of(options, columns)
