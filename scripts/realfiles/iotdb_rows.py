"""What a database itself answers, as expected rows in long form, and the files it has then.

One row a value, sorted: device, time, measurement, type, value. Devices bear the one name that
``common.tsfile`` gives them, so that a reader's outcome can be compared as text. A float is
written as Python's ``float.fromhex`` reads it, a text as a JSON string, a blob in hexadecimal, a
date as yyyymmdd. A null is an absent row.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from iotdb_client import Client, Field

from common.tsfile.device_names import device_name

__all__ = ["Snapshot", "rows_of_tables", "rows_of_tree", "write_rows"]

Row = tuple[str, int, str, str, str]
HEADER: Final = ("device", "time", "measurement", "type", "value")


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole database at one moment.

    Attributes:
        rows: all of it, as its own query answers.
        files: relative names of the closed TsFiles it consisted of.
        deletions: whether rows that the files hold had been deleted by then.
    """

    rows: tuple[Row, ...]
    files: frozenset[str]
    deletions: bool


def rows_of_tree(client: Client, database: str, below: str, where: str) -> Iterator[Row]:
    """All values below a database of the tree model; ``where`` may be empty."""
    for _, fields in client.query(f"show devices {database}.{below}").rows:
        assert fields[0] is not None
        path = _text(fields[0])
        answer = client.query(f"select * from {path} {where}")
        # with its back-ticks, as the database writes it into files
        names = [name[len(path) + 1 :] for name, _ in answer.columns[1:]]
        device = device_name((path,), table=False)
        for time, values in answer.rows:
            for name, value in zip(names, values, strict=True):
                if value is not None:
                    yield device, time, name, value.type, _value(value)


def rows_of_tables(client: Client, database: str) -> Iterator[Row]:
    """All values of a database of the table model; attributes are no part of the files."""
    client.execute(f'use "{database}"')
    for _, found in client.query("show tables").rows:
        assert found[0] is not None
        table = _text(found[0])
        category = {}
        for _, (name, _kind, role, *_) in client.query(f'describe "{table}"').rows:
            assert name is not None
            assert role is not None
            category[_text(name)] = _text(role)
        yield from _rows_of_table(client, table, category)


def _rows_of_table(client: Client, table: str, category: dict[str, str]) -> Iterator[Row]:
    answer = client.query(f'select * from "{table}"')
    names = [name for name, _ in answer.columns]
    for _, values in answer.rows:
        row = dict(zip(names, values, strict=True))
        tags = [_tag(row[name]) for name in names if category[name] == "TAG"]
        while tags and tags[-1] is None:
            tags.pop()
        device = device_name((table, *tags), table=True)
        (time,) = (row[name] for name in names if category[name] == "TIME")
        assert time is not None
        for name in names:
            value = row[name]
            if category[name] == "FIELD" and value is not None:
                yield device, int(time.text), name, value.type, _value(value)


def _text(field: Field) -> str:
    assert field.raw is not None
    return field.raw.decode()


def _tag(field: Field | None) -> str | None:
    return None if field is None else _text(field)


def _value(field: Field) -> str:
    if field.raw is None:
        return field.text
    return field.raw.hex() if field.type == "BLOB" else json.dumps(field.raw.decode())


def write_rows(path: Path, rows: list[Row]) -> None:
    """Write ``<case>.csv.gz``, the same bytes for the same rows."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(sorted(rows))
    path.write_bytes(gzip.compress(text.getvalue().encode(), 9, mtime=0))
