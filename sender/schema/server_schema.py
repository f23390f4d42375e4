"""All that a running database says of its schema, as items.

Series with type, encoding, compression, alias, tags and attributes; which devices are aligned;
databases with their TTL. Names of types are those of the TsFile format. What has no place in a
schema of the centre is counted, and told as not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from common.errors import ProtocolError
from common.schemaitems import Group, SeriesItem
from common.tsfile import quote_node, split_path
from common.tsfile.layout import Compression, DataType, Encoding
from sender.schema.database_server import DatabaseServer, ServerRow, StatementError

__all__ = ["ServerSchema", "has_series", "read_schema", "stored_path"]

_FOREVER: Final = (1 << 63) - 1


@dataclass
class ServerSchema:
    """What was read.

    Attributes:
        groups: databases, by path.
        series: by path.
        paths: of all series, those too that have no item.
        complete: whether nothing came or went while it was read, as far as it can be told.
        unread: what has no item, with its number.
    """

    groups: dict[str, Group] = field(default_factory=dict)
    series: dict[str, SeriesItem] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    complete: bool = False
    unread: Counter[str] = field(default_factory=Counter)


def read_schema(server: DatabaseServer) -> ServerSchema:
    """Ask for all of it.

    Raises:
        TsferryError: as `DatabaseServer.rows`.
    """
    found = ServerSchema()
    before = _count(server)
    _read_groups(server, found)
    aligned = {
        stored_path(_text(row, "device"))
        for row in server.pages("show devices")
        if str(row.get("isaligned")).lower() == "true"
    }
    rows = 0
    for row in server.pages("show timeseries"):
        rows += 1
        _take_series(row, aligned, found)
    found.complete = before == rows == len(found.paths) and before == _count(server)
    return found


def has_series(server: DatabaseServer, path: str) -> bool:
    """Whether one series is there; as `DatabaseServer.rows`."""
    return any(True for _ in server.rows(f"show timeseries {path}"))


def stored_path(text: str) -> str:
    """A path as the centre keeps it: in quotes only where it needs them."""
    return ".".join(map(quote_node, split_path(text)))


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
        text = "" if value is None else str(value)
        ttl = int(text) if text.isdecimal() else None
        yield str(path), ttl if ttl is not None and 0 < ttl < _FOREVER else None


# -- series ----------------------------------------------------------------------------------------


def _take_series(row: ServerRow, aligned: set[str], found: ServerSchema) -> None:
    path = stored_path(_text(row, "timeseries"))
    found.paths.add(path)
    if row.get("viewtype") not in (None, "BASE"):
        found.unread["logical views"] += 1
        return
    try:
        codes = (
            DataType[_text(row, "datatype")].value,
            Encoding[_text(row, "encoding")].value,
            Compression[_text(row, "compression")].value,
        )
    except KeyError as unknown:
        found.unread[f"series of a kind that is not known here ({unknown.args[0]})"] += 1
        return
    device = path[: -len(quote_node(split_path(path)[-1])) - 1]
    alias = row.get("alias")
    found.series[path] = SeriesItem(
        path=path,
        type=codes[0],
        encoding=codes[1],
        compression=codes[2],
        aligned=device in aligned,
        alias=alias if isinstance(alias, str) and alias not in ("", "null") else None,
        tags=_texts(row.get("tags")),
        attributes=_texts(row.get("attributes")),
    )


def _texts(value: Any) -> dict[str, str] | UnsetType:
    """Tags or attributes, which come as JSON in a text; nothing is said by what is not that."""
    if value in (None, "", "null"):
        return {}
    try:
        return msgspec.json.decode(value, type=dict[str, str])
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError):
        return UNSET
