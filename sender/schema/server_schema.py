"""All that a running database says of its schema, as items.

Series with type, encoding, compression, alias, tags and attributes; which devices are aligned;
databases with their TTL. Names of types are those of the TsFile format. What has no place in a
schema of the centre is counted, and told as not read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from common.decoders import from_json
from common.errors import ProtocolError
from common.formats.schemaitems import Group, SeriesItem
from common.text_numbers import whole_number
from common.tsfile import quote_node, split_path
from common.tsfile.layout import Compression, DataType, Encoding
from sender.schema.database_server import DatabaseServer, ServerRow, StatementError

__all__ = ["ServerSchema", "has_series", "read_schema", "stored_path"]

_FOREVER: Final = (1 << 63) - 1
_PLAIN: Final = re.compile(r"root(?:\.[A-Za-z_][A-Za-z0-9_]*+)+")


@dataclass
class ServerSchema:
    """What a database has, read as it is asked for.

    Attributes:
        server: the database.
        count: of its series, as it said before.
        groups: databases, by path.
        aligned: devices.
        shown: databases that have shown a series so far.
        rows: series that were read so far.
        unread: what has no item, with its number.
    """

    server: DatabaseServer
    count: int
    groups: dict[str, Group] = field(default_factory=dict)
    aligned: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    rows: int = 0
    unread: Counter[str] = field(default_factory=Counter)

    def series(self) -> Iterator[tuple[str, SeriesItem | None]]:
        """All series, by path, None where one has no item; to be read once.

        Raises:
            TsferryError: as `DatabaseServer.rows`.
        """
        for row in self.server.pages("show timeseries"):
            self.rows += 1
            self.shown.add(str(row.get("database", row.get("storagegroup"))))
            path = stored_path(_text(row, "timeseries"))
            yield path, self._item(row, path)

    def is_complete(self, different: int) -> bool:
        """Whether nothing came or went while the series were read, as far as it can be told.

        Args:
            different: paths that were read.
        """
        return self.count == self.rows == different and self.count == _count(self.server)

    def database_of(self, path: str) -> str | None:
        """The database that a series is in; None if that is not there."""
        end = path.find(".", len("root."))
        while end > 0:
            if path[:end] in self.groups:
                return path[:end]
            end = path.find(".", end + 1)
        return None

    def _item(self, row: ServerRow, path: str) -> SeriesItem | None:
        if row.get("viewtype") not in (None, "BASE"):
            self.unread["logical views"] += 1
            return None
        try:
            kind = DataType[_text(row, "datatype")].value
            encoding = Encoding[_text(row, "encoding")].value
            compression = Compression[_text(row, "compression")].value
        except KeyError as unknown:
            self.unread[f"series of a kind that is not known here ({unknown.args[0]})"] += 1
            return None
        alias = row.get("alias")
        return SeriesItem(
            path=path,
            type=kind,
            encoding=encoding,
            compression=compression,
            aligned=bool(self.aligned) and _device(path) in self.aligned,
            alias=alias if isinstance(alias, str) and alias not in ("", "null") else None,
            tags=_texts(row.get("tags")),
            attributes=_texts(row.get("attributes")),
        )


def read_schema(server: DatabaseServer) -> ServerSchema:
    """Ask for all of it but the series.

    Raises:
        TsferryError: as `DatabaseServer.rows`.
    """
    found = ServerSchema(server, _count(server))
    _read_groups(server, found)
    found.aligned = {
        stored_path(_text(row, "device"))
        for row in server.pages("show devices")
        if str(row.get("isaligned")).lower() == "true"
    }
    return found


def has_series(server: DatabaseServer, path: str) -> bool:
    """Whether one series is there; as `DatabaseServer.rows`."""
    return any(True for _ in server.rows(f"show timeseries {path}"))


def stored_path(text: str) -> str:
    """A path as the centre keeps it: in quotes only where it needs them."""
    if _PLAIN.fullmatch(text):
        return text
    return ".".join(map(quote_node, split_path(text)))


def _device(path: str) -> str:
    if "`" not in path:
        return path.rpartition(".")[0]
    return ".".join(map(quote_node, split_path(path)[:-1]))


def _count(server: DatabaseServer) -> int:
    for row in server.rows("count timeseries"):
        for value in row.values():
            if isinstance(value, int):
                return value
    raise ProtocolError(f"{server.url}: it does not say how many series it has")


def _text(row: ServerRow, column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str):
        raise ProtocolError(f"the answer of the database has no column {column}")
    return value


# -- databases -------------------------------------------------------------------------------------


def _read_groups(server: DatabaseServer, found: ServerSchema) -> None:
    ttls = dict(_ttls(server))
    everywhere = ttls.pop("root.**", None)
    for row in _databases(server):
        given = _text(row, "database" if "database" in row else "storagegroup")
        ttl = ttls.pop(given, None)
        ttl = ttls.pop(f"{given}.**", None) or ttl or everywhere
        path = stored_path(given)
        found.groups[path] = Group(path=path) if ttl is None else Group(path=path, ttl=ttl)
    found.unread["TTLs of a part of a database"] += sum(ttl is not None for ttl in ttls.values())


def _databases(server: DatabaseServer) -> list[ServerRow]:
    try:
        return list(server.rows("show databases"))
    except StatementError:  # 0.13
        return list(server.rows("show storage group"))


def _ttls(server: DatabaseServer) -> Iterator[tuple[str, int | None]]:
    """Milliseconds by database; from 1.3 on by pattern, None for ever."""
    for row in server.rows("show all ttl"):
        path = next(row[each] for each in ("device", "database", "storagegroup") if each in row)
        value = row.get("ttl(ms)", row.get("ttl"))
        ttl = whole_number("" if value is None else str(value))
        yield str(path), ttl if ttl and ttl < _FOREVER else None


def _texts(value: Any) -> dict[str, str] | UnsetType:
    """Tags or attributes, which come as JSON in a text; nothing is said by what is not that."""
    if value in (None, "", "null"):
        return {}
    try:
        found = from_json(value, dict[str, str])
        return {key: found[key] for key in sorted(found)}  # a server may give any order
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError):
        return UNSET
