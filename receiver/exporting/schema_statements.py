"""A schema as statements that the client of a database takes, one a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from msgspec import UNSET, UnsetType

from common.formats.schemaitems import Group, SeriesItem
from common.tsfile import TableSchema
from common.tsfile.layout import ColumnCategory
from receiver.exporting.output_file import codes_for
from receiver.metadata.model.paths import (
    Nodes,
    format_path,
    is_outside_tree,
    parse_stored,
    quote_node,
)
from receiver.metadata.model.types import COMPRESSION_TEXTS, ENCODING_TEXTS, TYPE_TEXTS

__all__ = ["table_statements", "tree_statements"]

_CATEGORIES: Final = {
    ColumnCategory.TAG: "TAG",
    ColumnCategory.ATTRIBUTE: "ATTRIBUTE",
    ColumnCategory.FIELD: "FIELD",
}


def tree_statements(
    groups: Iterable[Group], series: Iterable[SeriesItem], version: int
) -> Iterator[str]:
    """Storage groups with their TTL, then series with all that the schema has of them.

    What is of tables has a place in the schema too, but a database knows no such paths: see
    `table_statements`.

    Args:
        groups: of the schema.
        series: by path.
        version: of the exported files: servers of 3 may be too old for `CREATE DATABASE`.
    """
    make = "SET STORAGE GROUP TO" if version == 3 else "CREATE DATABASE"
    for group in groups:
        if is_outside_tree(parse_stored(group.path)):
            continue
        yield f"{make} {group.path};"
        if isinstance(group.ttl, int):
            yield f"SET TTL TO {group.path} {group.ttl};"
    for (device, aligned), several in groupby(series, _device):
        if is_outside_tree(device):
            continue
        if aligned:
            yield _aligned(device, list(several), version)
        else:
            yield from (_plain(each, version) for each in several)


def table_statements(
    tables: Mapping[str, Iterable[TableSchema]], groups: Iterable[Group]
) -> Iterator[str]:
    """Databases with their TTL and their tables, for a client that speaks of tables.

    Args:
        tables: database -> its tables.
        groups: of the schema; those of databases count.
    """
    kept = {parse_stored(each.path)[1]: each.ttl for each in groups if isinstance(each.ttl, int)}
    for database, several in sorted(tables.items()):
        name = _identifier(database)
        ttl = kept.get(f"/{database}")
        within = "" if ttl is None else f" WITH (TTL={ttl})"
        yield f"CREATE DATABASE IF NOT EXISTS {name}{within};"
        yield f"USE {name};"
        for table in several:
            columns = ", ".join(
                f"{_identifier(each.name)} {TYPE_TEXTS[each.data_type]} "
                f"{_CATEGORIES[ColumnCategory(each.category)]}"
                for each in table.columns
                if each.category in _CATEGORIES
            )
            yield f"CREATE TABLE IF NOT EXISTS {_identifier(table.name)} ({columns});"


def _device(series: SeriesItem) -> tuple[Nodes, bool]:
    return parse_stored(series.path)[:-1], series.aligned


def _codes(series: SeriesItem, version: int) -> tuple[str, str]:
    encoding, compression = codes_for(version, series.type, series.encoding, series.compression)
    return ENCODING_TEXTS[encoding], COMPRESSION_TEXTS[compression]


def _plain(series: SeriesItem, version: int) -> str:
    encoding, compression = _codes(series, version)
    return (
        f"CREATE TIMESERIES {series.path}{_alias(series)} WITH DATATYPE={TYPE_TEXTS[series.type]}, "
        f"ENCODING={encoding}, COMPRESSOR={compression}{_labels(series)};"
    )


def _aligned(device: Nodes, several: list[SeriesItem], version: int) -> str:
    columns = []
    for each in several:
        encoding, compression = _codes(each, version)
        name = quote_node(parse_stored(each.path)[-1])
        columns.append(
            f"{name}{_alias(each)} {TYPE_TEXTS[each.type]} ENCODING={encoding} "
            f"COMPRESSOR={compression}{_labels(each)}"
        )
    return f"CREATE ALIGNED TIMESERIES {format_path(device)}({', '.join(columns)});"


def _alias(series: SeriesItem) -> str:
    return f"({quote_node(series.alias)})" if isinstance(series.alias, str) and series.alias else ""


def _labels(series: SeriesItem) -> str:
    return _pairs("TAGS", series.tags) + _pairs("ATTRIBUTES", series.attributes)


def _pairs(word: str, pairs: Mapping[str, str] | UnsetType) -> str:
    if pairs is UNSET or not pairs:
        return ""
    said = ", ".join(f"{quote_node(key)}={_text(value)}" for key, value in pairs.items())
    return f" {word}({said})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
