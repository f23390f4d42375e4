"""TsFileMetadata: the footer, with the roots of the index.

v3: root node, int64 meta offset, Bloom filter. v4: the tables (name, root node), table schemas,
int64 meta offset, Bloom filter, properties. Source: apache/tsfile, ``TsFileMetadata``,
``TableSchema``, ``CompatibilityUtils``.
"""

from __future__ import annotations

import dataclasses
from typing import Final

import msgspec

from common.tsfile.index import IndexNode, read_node
from common.tsfile.layout import ColumnCategory
from common.tsfile.primitives import (
    INT32,
    Malformed,
    read_int64,
    read_str,
    read_uvarint,
    read_vbin,
    read_vstr,
)

__all__ = ["Footer", "TableColumn", "TableSchema", "read_footer"]

_NO_BLOOM: Final = b"\x00\x00\x00"  # what is left of the int32 0 that Java writes for "no filter"


@dataclasses.dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    Attributes:
        name: lower case, as a rule.
        data_type: code, see ``DataType``.
        encoding: code, see ``Encoding``.
        compression: code, see ``Compression``.
        category: code, see ``ColumnCategory``.
        properties: of the column, seldom any.
    """

    name: str
    data_type: int
    encoding: int
    compression: int
    category: int
    properties: tuple[tuple[str, str | None], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TableSchema:
    """A table of a table-model file."""

    name: str
    columns: tuple[TableColumn, ...]

    @property
    def tags(self) -> tuple[str, ...]:
        """Names of its tags, in the order that its devices have them."""
        return tuple(each.name for each in self.columns if each.category == ColumnCategory.TAG)

    def agrees_with(self, other: TableSchema) -> bool:
        """Whether the same segments are the same tags; a database only adds some, at the end."""
        mine, theirs = self.tags, other.tags
        fewer = min(len(mine), len(theirs))
        return mine[:fewer] == theirs[:fewer]


class Footer(msgspec.Struct, frozen=True):
    """What TsFileMetadata says; nothing in it is checked against the file yet."""

    roots: tuple[tuple[str, IndexNode], ...]
    tables: tuple[TableSchema, ...]
    meta_offset: int
    properties: dict[str, bytes | None]


def read_footer(buf: bytes, version: int) -> Footer:
    """Read TsFileMetadata, which ``buf`` holds exactly.

    Raises:
        Malformed, IndexError, struct.error: it is broken.
    """
    if version == 3:
        root, pos = read_node(buf, 0, segmented=False)
        meta_offset, _ = read_int64(buf, pos)
        return Footer((("", root),), (), meta_offset, {})
    roots, pos = _read_roots(buf, 0)
    tables, pos = _read_tables(buf, pos)
    meta_offset, pos = read_int64(buf, pos)
    pos = _skip_bloom_filter(buf, pos)
    return Footer(roots, tables, meta_offset, _read_properties(buf, pos))


def _read_roots(buf: bytes, pos: int) -> tuple[tuple[tuple[str, IndexNode], ...], int]:
    number, pos = _read_number(buf, pos, "tables")
    roots = []
    for _ in range(number):
        name, pos = _read_name(buf, pos)
        root, pos = read_node(buf, pos, segmented=True)
        roots.append((name, root))
    return tuple(roots), pos


def _read_tables(buf: bytes, pos: int) -> tuple[tuple[TableSchema, ...], int]:
    number, pos = _read_number(buf, pos, "table schemas")
    tables = []
    for _ in range(number):
        name, pos = _read_name(buf, pos)
        width, pos = _read_number(buf, pos, "columns")
        columns = []
        for _ in range(width):
            column, pos = _read_column(buf, pos)
            columns.append(column)
        tables.append(TableSchema(name, tuple(columns)))
    return tuple(tables), pos


def _read_column(buf: bytes, pos: int) -> tuple[TableColumn, int]:
    name, at = read_str(buf, pos)
    if name is None:
        raise Malformed("a table column without a name", pos)
    data_type, encoding, compression = buf[at], buf[at + 1], buf[at + 2]
    (number,) = INT32(buf, at + 3)
    if not 0 <= number <= len(buf) - at:
        raise Malformed(f"a table column of {number} properties", at + 3)
    at += 7
    properties = []
    for _ in range(number):
        key, at = read_str(buf, at)
        value, at = read_str(buf, at)
        properties.append((key or "", value))
    (category,) = INT32(buf, at)
    return TableColumn(name, data_type, encoding, compression, category, tuple(properties)), at + 4


def _skip_bloom_filter(buf: bytes, pos: int) -> int:
    if pos == len(buf):
        return pos
    size, at = read_uvarint(buf, pos)
    if not size:
        return at + 3 if buf[at : at + 3] == _NO_BLOOM and at + 3 < len(buf) else at
    if size > len(buf) - at:
        raise Malformed(f"a Bloom filter of {size} bytes, more than is left", pos)
    _, at = read_uvarint(buf, at + size)
    _, at = read_uvarint(buf, at)
    return at


def _read_properties(buf: bytes, pos: int) -> dict[str, bytes | None]:
    """Read properties up to the end of ``buf``.

    Java and C++ write their number zig-zag, Java reads it as unsigned, and other writers may
    write what is read: both are right.
    """
    if pos == len(buf):
        return {}
    begin = pos
    number, pos = read_uvarint(buf, pos)
    properties: dict[str, bytes | None] = {}
    entries = 0
    while pos < len(buf):
        key, pos = _read_name(buf, pos)
        properties[key], pos = read_vbin(buf, pos)
        entries += 1
    if entries not in (number, number >> 1):
        raise Malformed(f"{entries} properties where {number} are announced,", begin)
    return properties


def _read_number(buf: bytes, pos: int, of: str) -> tuple[int, int]:
    number, at = read_uvarint(buf, pos)
    if number > len(buf) - at:
        raise Malformed(f"{number} {of}, more than there is room for,", pos)
    return number, at


def _read_name(buf: bytes, pos: int) -> tuple[str, int]:
    name, at = read_vstr(buf, pos)
    if name is None:
        raise Malformed("a null where a name must stand", pos)
    return name, at
