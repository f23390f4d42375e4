"""A stand-in for the REST service of a running Apache IoTDB, on loopback."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["FakeDatabase", "fake_database"]

_PAGE = re.compile(r" limit (\d+) offset (\d+)$")
_SERIES = (
    "Timeseries", "Alias", "Database", "DataType", "Encoding", "Compression", "Tags", "Attributes",
    "Deadband", "DeadbandParameters", "ViewType",
)  # fmt: skip


@dataclass
class FakeDatabase:
    """What it has, and how it answers; tests change it as they go.

    Attributes:
        version: "2.0", "1.0" or "0.13": names of members and columns differ.
        databases: TTL by path.
        ttls: of other patterns.
        series: columns by path, as `series_row` makes them.
        aligned: devices.
        asked: statements, in their order.
        before: called with each statement before it is answered.
        answer: takes the place of the next answers: status and body.
    """

    version: str = "2.0"
    user: str = "root"
    password: str = "root"
    databases: dict[str, int | None] = field(default_factory=dict)
    ttls: dict[str, int | None] = field(default_factory=dict)
    series: dict[str, dict[str, Any]] = field(default_factory=dict)
    aligned: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    before: Callable[[str], None] = lambda _: None
    answer: tuple[int, bytes] | None = None
    most_rows: int = 10_000
    url: str = ""

    def make(
        self,
        path: str,
        kind: str = "FLOAT",
        *,
        alias: str | None = None,
        tags: dict[str, str] | None = None,
        attributes: dict[str, str] | None = None,
        **columns: Any,
    ) -> None:
        self.series[path] = {
            "Timeseries": path,
            "Alias": alias,
            "Database": ".".join(path.split(".")[:2]),
            "DataType": kind,
            "Encoding": "GORILLA" if kind == "FLOAT" else "PLAIN",
            "Compression": "LZ4",
            "Tags": None if tags is None else json.dumps(tags),
            "Attributes": None if attributes is None else json.dumps(attributes),
            "Deadband": None,
            "DeadbandParameters": None,
            "ViewType": "BASE",
            **columns,
        }

    def carry_out(self, statement: str) -> dict[str, Any]:
        self.asked.append(statement)
        self.before(statement)
        page = _PAGE.search(statement)
        names, rows = self._rows(statement[: page.start()] if page else statement)
        if names is None:
            return {"code": 700, "message": f"mismatched input in {statement}"}
        if page:
            count, offset = map(int, page.groups())
            rows = rows[offset : offset + count]
        if len(rows) > self.most_rows:
            return {"code": 708, "message": "Dataset row size exceeded the given max row size"}
        key = "columnNames" if self.version == "2.0" else "column_names"
        columns = [list(each) for each in zip(*rows, strict=True)] if rows else []
        if self.version == "0.13":
            names = [re.sub("Database", "storage group", each) for each in names]
            names = [each[:1].lower() + each[1:] for each in names]
        return {"expressions": None, key: names, "timestamps": None, "values": columns}

    def _rows(self, statement: str) -> tuple[list[str] | None, list[list[Any]]]:
        if statement == "count timeseries":
            return ["count(timeseries)"], [[len(self.series)]]
        if statement == "show databases" and self.version != "0.13":
            return ["Database"], [[each] for each in self.databases]
        if statement == "show storage group":
            return ["Database"], [[each] for each in self.databases]
        if statement == "show all ttl":
            return self._ttl_rows()
        if statement == "show devices":
            devices = sorted({each.rpartition(".")[0] for each in self.series})
            return ["Device", "IsAligned"], [[d, str(d in self.aligned).lower()] for d in devices]
        if statement.startswith("show timeseries"):
            wanted = statement.removeprefix("show timeseries").strip()
            found = [each for path, each in sorted(self.series.items()) if wanted in ("", path)]
            names = [each for each in _SERIES if self.version == "2.0" or each != "ViewType"]
            return names, [[each[name] for name in names] for each in found]
        return None, []

    def _ttl_rows(self) -> tuple[list[str], list[list[Any]]]:
        if self.version != "2.0":
            return ["Database", "TTL(ms)"], [list(each) for each in self.databases.items()]
        rows: dict[str, int | None] = {"root.**": None}
        for path, ttl in self.databases.items():
            if ttl is not None:
                rows[path] = rows[f"{path}.**"] = ttl
        rows |= self.ttls
        return ["Device", "TTL(ms)"], [
            [path, "INF" if ttl is None else str(ttl)] for path, ttl in rows.items()
        ]


@contextmanager
def fake_database(version: str = "2.0") -> Iterator[FakeDatabase]:
    """One that serves until the end of the block."""
    there = FakeDatabase(version)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, content = 200, b""
            login = f"{there.user}:{there.password}".encode()
            if self.headers.get("Authorization") != f"Basic {base64.b64encode(login).decode()}":
                status, content = 401, b'{"code":801,"message":"wrong password"}'
            elif there.answer is not None:
                status, content = there.answer
            elif self.path != "/rest/v1/query":
                status = 404
            else:
                content = json.dumps(there.carry_out(json.loads(body)["sql"])).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    there.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield there
    finally:
        server.shutdown()
        server.server_close()
