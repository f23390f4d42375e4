"""The columns of the result, in long and in wide form.

Long form, always the same columns::

    device string, measurement string, time bigint, data_type string,
    value_boolean boolean, value_long bigint, value_double double,
    value_string string, value_binary binary, value_date date

INT32, INT64 and TIMESTAMP stand in ``value_long``, FLOAT and DOUBLE in ``value_double`` (a FLOAT
exactly: cast it to get the shorter number back). Each row has one value, which is never NULL.

Wide form: ``time``, then ``device`` (tree model) or the tags of the one table (table model), then
a column a measurement, merged over all files. Of the same name but different types: an error that
names both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from common.errors import UsageError
from common.tsfile import DataType, TableSchema, Tail
from receiver.spark.value_types import LONG_VALUES, TAG_KEY, TYPE_KEY, table_tags, type_name

if TYPE_CHECKING:
    from receiver.spark.source.read_plans.picking import Picker
    from receiver.spark.source.read_plans.source_options import SourceOptions

__all__ = [
    "ResultColumn",
    "WideSchema",
    "long_columns",
]


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of the result: name, type as Spark writes it, and metadata."""

    name: str
    type: str
    metadata: Mapping[str, str] = field(default_factory=dict)


def long_columns(options: SourceOptions) -> list[ResultColumn]:
    """The columns of the long form."""
    columns = [
        ResultColumn(options.device_column, "string"),
        ResultColumn("measurement", "string"),
        _time_column(options),
        ResultColumn("data_type", "string"),
        *(ResultColumn(name, kind) for name, kind in LONG_VALUES.items()),
    ]
    return _checked([*columns, *_extra_columns(options)], {})


def _time_column(options: SourceOptions) -> ResultColumn:
    unit = options.time_unit
    return ResultColumn(options.time_column, "bigint", {} if unit is None else {"unit": unit})


def _extra_columns(options: SourceOptions) -> list[ResultColumn]:
    columns = []
    if options.file_column is not None:
        columns.append(ResultColumn(options.file_column, "string"))
    if options.on_error == "row":
        columns.append(ResultColumn(options.error_column, "string"))
    return columns


@dataclass(frozen=True, slots=True)
class _Found:
    """A column of some file: its type, and where that was seen first."""

    type: str
    code: int
    file: str
    device: str
    is_one: bool = True
    """Whether no other type of a file was seen that is the same to Spark."""

    @property
    def metadata(self) -> dict[str, str]:
        return {TYPE_KEY: DataType(self.code).name} if self.is_one else {}


class WideSchema:
    """Merges the measurements of many files into the columns of the wide form."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._fields: dict[str, _Found] = {}
        self._tags: tuple[str, ...] | None = None
        self._tags_from = ""
        self._order: dict[str, None] = {}
        self._tables: dict[tuple[str | None, str], str] = {}
        self._tree_from: str | None = None
        self._seen: set[str] = set()
        self.files = 0

    def add(self, name: str, database: str | None, tail: Tail, picker: Picker) -> None:
        """Take a file in.

        Args:
            name: of the file, for messages.
            database: that its tables are in, if known.
            tail: of it.
            picker: says which devices and measurements are wanted.

        Raises:
            UsageError: a column has two types, or there is more than one table.
        """
        self.files += 1
        schemas = {each.name: each for each in tail.tables}
        for device in tail.devices:
            schema = schemas.get(device.segments[0] or "") if device.is_table else None
            if not picker.takes_device(device, database, schema):
                continue
            if device.is_table:
                self._add_table(name, database, schema, device.name)
            elif self._tree_from is None:
                self._tree_from = name
            self._one_model(name)
            for series in device.series():
                self._seen.add(series.measurement)
                if picker.takes_measurement(series.measurement):
                    self._add_field(series.measurement, series.data_type, name, device.name)

    def _add_table(
        self, name: str, database: str | None, schema: TableSchema | None, device: str
    ) -> None:
        table = schema.name if schema is not None else device.partition(":")[0]
        self._tables.setdefault((database, table), name)
        if len(self._tables) > 1:
            (first, one), *_, (last, other) = list(self._tables.items())[:2]
            raise UsageError(
                f"option form = 'wide': there are the tables {_shown(first)} (in {one}) and "
                f"{_shown(last)} (in {other}); expected one of them as option table, or "
                "form = 'long'"
            )
        tags = () if schema is None else table_tags(schema)
        if self._tags is None or tags[: len(self._tags)] == self._tags:
            self._tags, self._tags_from = tags, name  # a database only adds tags, at the end
        elif self._tags[: len(tags)] != tags:
            raise UsageError(
                f"the table {table} has the tags {', '.join(self._tags)} in {self._tags_from} and "
                f"{', '.join(tags)} in {name}; expected files that agree, or form = 'long'"
            )
        if schema is not None:
            self._order.update(dict.fromkeys(each.name for each in schema.columns))

    def _one_model(self, name: str) -> None:
        if self._tree_from is not None and self._tables:
            table_file = next(iter(self._tables.values()))
            raise UsageError(
                f"option form = 'wide': {self._tree_from} holds devices of the tree model, "
                f"{table_file} of the table model; expected option devices or option table, or "
                "form = 'long'"
            )

    def _add_field(self, measurement: str, code: int, name: str, device: str) -> None:
        kind = type_name(code, self._options.text)
        if kind is None:
            return
        known = self._fields.setdefault(measurement, _Found(kind, code, name, device))
        if known.type != kind:
            raise UsageError(
                f"column {measurement}: {DataType(known.code).name} in {known.file} (device "
                f"{known.device}), {DataType(code).name} in {name} (device {device}); choose with "
                "the options devices or columns, give a schema with the wider type, or read with "
                "form = 'long'"
            )
        if known.is_one and known.code != code:
            self._fields[measurement] = replace(known, is_one=False)

    def columns(self) -> list[ResultColumn]:
        """The columns.

        Raises:
            UsageError: there is nothing, a wanted column is missing, or names collide.
        """
        options = self._options
        if not self._fields and not self._tables and self._tree_from is None:
            if self.files and not (options.devices or options.table or options.columns):
                files = "the file holds" if self.files == 1 else f"the {self.files} files hold"
                raise UsageError(
                    f"form = 'wide': {files} no rows, so there are no columns to be had; "
                    "expected other files, form = 'long', or a schema"
                )
            raise UsageError(
                f"form = 'wide': no device is left to take columns from in {self.files} files; "
                "expected other files, devices or table, or a schema"
            )
        missing = [each for each in options.columns or () if each not in self._fields]
        if missing:
            near = ", ".join(sorted(self._seen)[:20])
            raise UsageError(
                f"option columns: there is no {missing[0]!r} in {self.files} files; expected some "
                f"of {near}"
            )
        head = [_time_column(options)]
        if self._tables:
            head += [ResultColumn(each, "string", {TAG_KEY: "true"}) for each in self._tags or ()]
        else:
            head.append(ResultColumn(options.device_column, "string"))
        known_tags = {each.lower() for each in self._tags or ()}
        for name, _ in options.tags:
            if name.lower() not in known_tags:
                raise UsageError(
                    f"option tags: there is no {name!r}; expected some of "
                    f"{', '.join(self._tags or ())}"
                )
        names: Iterable[str] = sorted(self._fields)
        if options.columns is not None:
            names = options.columns
        elif self._order:
            known = [each for each in self._order if each in self._fields]
            names = [*known, *(each for each in names if each not in self._order)]
        fields = [
            ResultColumn(each, found.type, found.metadata)
            for each, found in ((name, self._fields[name]) for name in names)
        ]
        return _checked([*head, *fields, *_extra_columns(options)], self._fields)


def _checked(columns: list[ResultColumn], found: Mapping[str, _Found]) -> list[ResultColumn]:
    """See that no two names are the same to Spark, which does not tell cases apart."""
    seen: dict[str, str] = {}
    for column in columns:
        other = seen.setdefault(column.name.lower(), column.name)
        if other is not column.name:
            places = [f"{each} (in {found[each].file})" for each in (other, column.name)
                      if each in found]  # fmt: skip
            raise UsageError(
                f"columns {other!r} and {column.name!r} have the same name to Spark"
                f"{': ' + ', '.join(places) if places else ''}; expected option columns without "
                "one of them, or another timeColumn, deviceColumn, errorColumn or fileColumn"
            )
    return columns


def _shown(table: tuple[str | None, str]) -> str:
    database, name = table
    return name if database is None else f"/{database}/{name}"
