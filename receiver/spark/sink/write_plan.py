"""What driver and tasks of a write share; it is pickled, and has no token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from common import __version__
from common.errors import UsageError
from common.tsfile import DataType
from receiver.spark.sink.sink_options import SinkOptions
from receiver.spark.value_types import LONG_VALUES, TAG_KEY, TYPE_KEY, type_name

__all__ = ["SinkColumn", "SinkField", "WritePlan", "fits", "planned_columns"]

_DEFAULTS: Final = {
    "boolean": DataType.BOOLEAN,
    "int": DataType.INT32,
    "bigint": DataType.INT64,
    "float": DataType.FLOAT,
    "double": DataType.DOUBLE,
    "string": DataType.TEXT,
    "binary": DataType.BLOB,
    "date": DataType.DATE,
}
"""Type of a new series by that of its column in Spark."""
_TIME: Final = "time"
"""A column that every table has, under this name."""
_CASTS: Final = {
    "decimal": "cast({} as double), or as string",
    "tinyint": "cast({} as int)",
    "smallint": "cast({} as int)",
    "timestamp": "unix_millis({}), in the unit of the receiver",
    "timestamp_ntz": "unix_millis(to_timestamp_ltz({})), in the unit of the receiver",
    "array": "to_json({})",
    "map": "to_json({})",
    "struct": "to_json({})",
    "variant": "to_json({})",
}
"""What to write in place of a column of a type that no file has."""
_LONG: Final = ("measurement", "data_type")


@dataclass(frozen=True, slots=True)
class SinkColumn:
    """A column of the DataFrame: its name, its type as Spark writes it, its metadata."""

    name: str
    type: str
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class SinkField:
    """A column of the wide form that is a measurement.

    Attributes:
        name: of it.
        type: in Spark.
        data_type: that a new series gets; a known one keeps its own.
    """

    name: str
    type: str
    data_type: int


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What driver and tasks of a write share.

    Attributes:
        options: of the write.
        task: its id at the receiver.
        fields: measurements of the wide form.
        tags: names of the tags of its table.
        owner: uuid of whoever gets devices that nobody owns.
        interval: width of a partition.
        block: bytes that the receiver takes at once, at most.
        version: of tsferry, where it was made.
    """

    options: SinkOptions
    task: str
    fields: tuple[SinkField, ...]
    tags: tuple[str, ...]
    owner: str = ""
    interval: int = 0
    block: int = 0
    version: str = __version__


def planned_columns(
    options: SinkOptions, columns: Sequence[SinkColumn]
) -> tuple[tuple[SinkField, ...], tuple[str, ...]]:
    """The fields and the tags of a DataFrame; both empty in the long form.

    Raises:
        UsageError: a column is missing, or is of a type that no file has.
    """
    known = {each.name: each for each in columns}
    if "" in known or len(known) < len(columns):
        raise UsageError("each column needs a name, and no two the same")
    _expect(known, options.time_column, "bigint", "the time as files have it (unix_millis(...))")
    if options.form == "long":
        _check_long(options, known)
        return (), ()
    tags = _tags(options, known)
    if options.table is None:
        if tags:
            raise UsageError(
                f"column {tags[0]} is a tag: expected option table, which rows with tags are of"
            )
        _expect(known, options.device_column, "string", "the device (or option table)")
    elif options.database is None:
        raise UsageError(
            f"option table = {options.table!r}: expected its database, as '/site/plant', or as "
            "option sg"
        )
    own = {options.time_column, *tags}
    if options.table is None:
        own.add(options.device_column)
    fields = tuple(_field(each) for each in columns if each.name not in own)
    if options.table is None and not fields:
        raise UsageError("no column is a measurement: nothing would be written")
    wrong = [each.name for each in fields if each.name.lower() == _TIME]
    if options.table is not None and wrong:
        raise UsageError(f"column {wrong[0]}: a table has its time under that name; rename it")
    return fields, tags


def _field(column: SinkColumn) -> SinkField:
    default = _DEFAULTS.get(column.type)
    if default is None:
        kind = column.type.partition("(")[0]
        cast = _CASTS.get(kind)
        instead = f"; expected {cast.format(column.name)}" if cast else ""
        raise UsageError(
            f"column {column.name} is {column.type}, which no TsFile has (but "
            f"{', '.join(_DEFAULTS)}){instead}"
        )
    said = column.metadata.get(TYPE_KEY, "")
    code = DataType[said] if said in DataType.__members__ else default
    return SinkField(column.name, column.type, code if fits(code, column.type) else default)


def fits(data_type: int, kind: str) -> bool:
    """Whether a series of a type has the values of a column of Spark's."""
    return kind in (type_name(data_type), type_name(data_type, "binary"))


def _tags(options: SinkOptions, known: dict[str, SinkColumn]) -> tuple[str, ...]:
    names = options.tag_columns
    if names is None:
        names = tuple(name for name, each in known.items() if TAG_KEY in each.metadata)
    if len({*names, options.time_column}) <= len(names):
        raise UsageError(f"option tagColumns = {', '.join(names)}: each once, and not the time")
    for name in names:
        _expect(known, name, "string", "a tag (option tagColumns)")
    return names


def _check_long(options: SinkOptions, known: dict[str, SinkColumn]) -> None:
    _expect(known, options.device_column, "string", "the device")
    for name in _LONG:
        _expect(known, name, "string", "of the long form")
    for name, kind in LONG_VALUES.items():
        if name in known:
            _expect(known, name, kind, "of the long form")
    odd = set(known) - {options.time_column, options.device_column, *_LONG, *LONG_VALUES}
    if odd:
        raise UsageError(f"column {min(odd)}: the long form has none such; leave it out by select")


def _expect(known: dict[str, SinkColumn], name: str, kind: str, what: str) -> None:
    column = known.get(name)
    if column is None:
        raise UsageError(f"column {name} is missing: {what}")
    if column.type != kind:
        raise UsageError(f"column {name} is {column.type}: expected {kind}, {what}")
