"""What the types of a TsFile are in Spark, what metadata of columns says, which ones are tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from common.tsfile import DataType, TableSchema

__all__ = ["LONG_VALUES", "TAG_KEY", "TYPE_KEY", "table_tags", "type_name", "value_column"]

TAG_KEY: Final = "tsfile.tag"
"""Key of the metadata of a column that is a tag."""
TYPE_KEY: Final = "tsfile.type"
"""Key of the metadata of a measurement's column: its type in files, where all have the same."""

_TYPES: Final[Mapping[int, str]] = {
    DataType.BOOLEAN: "boolean",
    DataType.INT32: "int",
    DataType.INT64: "bigint",
    DataType.FLOAT: "float",
    DataType.DOUBLE: "double",
    DataType.TEXT: "string",
    DataType.STRING: "string",
    DataType.BLOB: "binary",
    DataType.OBJECT: "binary",
    DataType.DATE: "date",
    DataType.TIMESTAMP: "bigint",
}
_LONG_OF: Final = {
    "boolean": "value_boolean",
    "int": "value_long",
    "bigint": "value_long",
    "float": "value_double",
    "double": "value_double",
    "string": "value_string",
    "binary": "value_binary",
    "date": "value_date",
}
LONG_VALUES: Final[Mapping[str, str]] = {
    "value_boolean": "boolean",
    "value_long": "bigint",
    "value_double": "double",
    "value_string": "string",
    "value_binary": "binary",
    "value_date": "date",
}


def type_name(data_type: int, text: str = "string") -> str | None:
    """The Spark type of a series; None for one that has no points to read (VECTOR, unknown)."""
    if text == "binary" and data_type in (DataType.TEXT, DataType.STRING):
        return "binary"
    return _TYPES.get(data_type)


def value_column(data_type: int, text: str = "string") -> str | None:
    """The column of the long form that values of a type stand in."""
    name = type_name(data_type, text)
    return None if name is None else _LONG_OF[name]


def table_tags(table: TableSchema) -> tuple[str, ...]:
    """Names of the tags of a table, in the order that its devices have them."""
    return table.tags
