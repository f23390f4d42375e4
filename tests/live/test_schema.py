"""The schema of a real server: what its logs, and its REST service, say is what it shows itself."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from common.durable import Tree
from common.formats.schemaitems import SeriesItem
from common.tsfile.layout import Compression, DataType, Encoding
from common.wire import SchemaPosition
from receiver.load.schema.end_state import reduce_text
from sender.config import SchemaConfig
from sender.schema.database_server import DatabaseServer
from sender.schema.notes import SchemaNotes
from sender.schema.server_schema import read_schema, stored_path
from sender.schema.text_log import TextLog
from tests.live.server import Server, versions

pytestmark = pytest.mark.timeout(600)

Shown = Mapping[str, tuple[Any, ...]]
TTL = 86_400_000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    servers = metafunc.config.getoption("servers")
    if servers is None:
        raise pytest.UsageError("tests/live wants --servers DIR: see scripts/live")
    metafunc.parametrize("version", versions(servers))


@pytest.fixture
def server(request: pytest.FixtureRequest, version: str, tmp_path: Path) -> Server:
    return Server(request.config.getoption("servers") / version, tmp_path / "run")


def begin(server: Server) -> None:
    groups = server.kind.groups
    for sql in (
        f"{groups} root.plant",
        f"{groups} root.farm",
        "create timeseries root.plant.d0.s1 with datatype=FLOAT, encoding=GORILLA, "
        "compression=SNAPPY",
        "create timeseries root.plant.d0.s2(warm) with datatype=INT64, encoding=TS_2DIFF, "
        "compression=LZ4 tags(unit=c, place=hall) attributes(maker=acme)",
        "create timeseries root.plant.d0.s3 with datatype=TEXT, encoding=PLAIN, compression=GZIP",
        "create timeseries root.plant.d1.s1 with datatype=BOOLEAN, encoding=RLE tags(unit=none)",
        f"set ttl to root.farm {TTL}",
    ):
        server.say(sql)
    if server.kind.aligned:
        server.say(
            "create aligned timeseries root.farm.a1(x FLOAT encoding=RLE compressor=SNAPPY, "
            "y INT32 encoding=PLAIN compressor=LZ4)"
        )
    else:
        server.say("create timeseries root.farm.a1.x with datatype=FLOAT")


def go_on(server: Server) -> None:
    for sql in (
        "alter timeseries root.plant.d0.s2 set unit=f",
        "alter timeseries root.plant.d0.s1 add tags fresh=yes",
        "alter timeseries root.plant.d0.s3 upsert alias=words tags(lang=en) attributes(who=me)",
        "create timeseries root.plant.d0.s9 with datatype=DOUBLE",
        f"insert into root.farm.d9(timestamp, s1, s2) values({int(time.time() * 1000)}, 1.5, 'a')",
    ):
        server.say(sql)
    if server.kind.drops:
        server.say("delete timeseries root.plant.d1.s1")
        server.say("create timeseries root.plant.d1.s1 with datatype=INT32")


def shown(server: Server) -> Shown:
    """What the server shows of its series."""
    found = {}
    for row in server.say("show timeseries")["rows"]:
        _, path, alias, _, *codes, tags, attributes = row[:9]
        found[stored_path(path)] = (*codes, _word(alias), _texts(tags), _texts(attributes))
    return found


def _word(text: str | None) -> str | None:
    return None if text in (None, "", "null") else text


def _texts(text: str | None) -> dict[str, str]:
    found: dict[str, str] = json.loads(text) if _word(text) else {}
    return found


def said(items: Mapping[str, SeriesItem]) -> Shown:
    return {
        path: (
            DataType(item.type).name,
            Encoding(item.encoding).name,
            Compression(item.compression).name,
            item.alias or None,
            item.tags or {},
            item.attributes or {},
        )
        for path, item in items.items()
    }


class Edge:
    """The files of a server, as a sender reads them, and what was told of them."""

    def __init__(self, server: Server, sync: Path) -> None:
        self.dir = server.data / "system" / "schema"
        self.sync = Tree(sync, create=True)
        self.position: SchemaPosition | None = None
        self.text = b""
        self.slots: dict[int, bytes] = {}

    def look(self) -> dict[str, SeriesItem]:
        notes = SchemaNotes.open(self.sync, "centre")
        with TextLog.open(self.dir, notes) as log:
            assert log is not None
            plan = log.plan(self.position, notes, whole=False)
            if plan is not None:
                if plan.base == 0:
                    self.text, self.slots = b"", {}
                for _, piece, slots in log.blocks(plan, 0, 1 << 20):
                    self.text += piece
                    self.slots.update(slots)
                self.position = SchemaPosition(
                    identity=plan.identity, offset=plan.offset, mark=log.mark(plan)
                )
        reduced = reduce_text(self.text, self.slots)
        assert reduced.failed == []
        return {each.path: each for each in reduced.items if isinstance(each, SeriesItem)}


def await_port(url: str) -> None:
    """The REST service comes after the others."""
    for _ in range(240):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) == 0:
                return
        time.sleep(0.25)


def asked(server: Server) -> dict[str, SeriesItem]:
    await_port(server.rest)
    database = DatabaseServer(SchemaConfig(server=server.rest), threading.Event())
    try:
        found = read_schema(database)
        series = {path: item for path, item in found.series() if item is not None}
        assert found.is_complete(len(series))
    finally:
        database.close()
    assert found.groups["root.farm"].ttl == TTL
    assert not found.groups["root.plant"].ttl
    return series


def check(server: Server, edge: Edge) -> None:
    there = shown(server)
    from_files = edge.look()
    assert said(from_files) == there
    if server.kind.aligned:
        from_server = asked(server)
        assert said(from_server) == there
        lined = {path for path, item in from_server.items() if item.aligned}
        assert lined == {"root.farm.a1.x", "root.farm.a1.y"}
        assert {path for path, item in from_files.items() if item.aligned} == lined


def test_files_and_server_say_what_it_shows(server: Server, tmp_path: Path) -> None:
    edge = Edge(server, tmp_path / "sync")
    with server.running(server.kind.quiet):
        begin(server)
        check(server, edge)
        go_on(server)
        check(server, edge)
    assert edge.position is not None
    before = edge.position
    edge.look()
    assert edge.position == before  # a stop tells nothing new
