"""The schema of a running database: all of it once, then what changed, and never a guess."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from common.config import Secret
from common.durable import Tree
from common.errors import (
    ConfigError,
    ProtocolError,
    StoppedError,
    TsferryError,
    UnauthorizedError,
    UnreachableError,
)
from common.formats.schemaitems import Dropped, Group, Item, SeriesItem, read_items
from common.wire import SchemaPosition
from sender.config import SchemaConfig
from sender.schema import database_server
from sender.schema.database_server import DatabaseServer, StatementError
from sender.schema.notes import SchemaNotes
from sender.schema.server_log import ServerLog
from sender.schema.upstream_changes import ChangesPlan
from tests.support.fake_database import FakeDatabase, fake_database

ENDPOINT = "127.0.0.1_5555"


class World:
    """A database, and what the receiver has applied of it."""

    def __init__(self, root: Path, database: FakeDatabase) -> None:
        self.database = database
        self.sync = Tree(root / "sync", create=True)
        self.kept = root / "sync" / ENDPOINT
        self.position: SchemaPosition | None = None
        self.now = 1000.0
        self.up = 100.0
        self.password = "root"

    def notes(self) -> SchemaNotes:
        return SchemaNotes.open(self.sync, ENDPOINT)

    def ship(self, *, applied: bool = True, whole: bool = False) -> list[Item] | None:
        """What is told; None for nothing."""
        config = SchemaConfig(server=self.database.url, password=Secret(self.password))
        server = DatabaseServer(config, threading.Event())
        notes = self.notes()
        log = ServerLog(server, notes, 600.0, lambda: self.now, lambda: self.up)
        try:
            plan = log.plan(self.position, notes, whole=whole)
            if plan is None:
                return None
            return self._told(log, plan, applied=applied)
        finally:
            server.close()

    def _told(self, log: ServerLog, plan: ChangesPlan, *, applied: bool) -> list[Item]:
        data = b"".join(piece for _, piece, _ in log.blocks(plan, 0, 100))
        there = self.position
        if plan.base:
            assert there is not None
            assert (plan.identity, plan.base) == (there.identity, there.offset)
        if applied:
            self.position = SchemaPosition(
                identity=plan.identity, offset=plan.offset, mark=log.mark(plan)
            )
        return [item for _, item in read_items(data) if not isinstance(item, str)]

    def later(self) -> None:
        self.now += 601
        self.up += 601


@pytest.fixture(params=["2.0", "1.0", "0.13"])
def database(request: pytest.FixtureRequest) -> Iterator[FakeDatabase]:
    with fake_database(request.param) as there:
        there.databases = {"root.a": None, "root.b": 86_400_000}
        there.make("root.a.d.s", alias="warm", tags={"unit": "c"}, attributes={"by": "x"})
        there.make("root.a.d.t", "INT64")
        there.make("root.b.`x.y`.`1`", "TEXT")
        there.aligned = {"root.b.`x.y`"}
        yield there


@pytest.fixture
def world(tmp_path: Path, database: FakeDatabase) -> Iterator[World]:
    made = World(tmp_path, database)
    yield made
    made.sync.close()


def test_all_is_told_once_and_then_nothing(world: World) -> None:
    nothing: dict[str, Any] = {"alias": None, "tags": {}, "attributes": {}}
    assert world.ship() == [
        Group(path="root.a"),
        Group(path="root.b", ttl=86_400_000),
        SeriesItem(
            path="root.a.d.s", type=3, encoding=8, compression=7,
            alias="warm", tags={"unit": "c"}, attributes={"by": "x"},
        ),
        SeriesItem(path="root.a.d.t", type=2, encoding=0, compression=7, **nothing),
        SeriesItem(
            path="root.b.`x.y`.`1`", type=5, encoding=0, compression=7, aligned=True, **nothing
        ),
    ]  # fmt: skip
    world.later()
    assert world.ship() is None


def test_what_changed_is_told_and_no_more(world: World) -> None:
    world.ship()
    world.later()
    world.database.make("root.a.d.s", alias="hot", tags={"unit": "f"}, attributes={"by": "x"})
    world.database.make("root.a.d.u")
    world.database.make("root.a.d.t", "TEXT")  # deleted and made anew
    world.database.databases["root.b"] = None
    told = world.ship()
    assert told is not None
    assert [(type(each).__name__, each.path) for each in told] == [
        ("Group", "root.b"),
        ("SeriesItem", "root.a.d.s"),
        ("SeriesItem", "root.a.d.t"),
        ("SeriesItem", "root.a.d.u"),
    ]
    assert isinstance(told[0], Group)
    assert told[0].ttl is None
    assert [each.replaces for each in told if isinstance(each, SeriesItem)] == [False, True, False]
    world.later()
    assert world.ship() is None


def test_it_is_not_asked_in_every_round(world: World) -> None:
    world.ship()
    world.database.asked.clear()
    world.database.make("root.a.d.u")
    assert world.ship() is None
    assert world.database.asked == []
    assert world.ship(whole=True) is not None
    world.now -= 5000  # a clock that was set back is no reason to wait
    world.database.make("root.a.d.v")
    assert world.ship() is not None


def test_what_the_receiver_did_not_apply_is_told_again(world: World) -> None:
    first = world.ship(applied=False)
    assert world.ship(applied=False) == first
    assert world.ship() == first
    world.later()
    world.database.make("root.a.d.u")
    again = world.ship(applied=False)
    assert again is not None
    assert [each.path for each in again] == ["root.a.d.u"]
    assert world.ship() == again


def test_a_series_that_is_gone_is_told_once_it_is_asked_for(world: World) -> None:
    world.ship()
    world.later()
    del world.database.series["root.a.d.t"]
    assert world.ship() is None  # one that has just been started shows less than it has
    assert world.ship(whole=True) is not None
    world.later()
    assert world.ship(applied=False) == [Dropped(path="root.a.d.t")]
    assert world.ship() == [Dropped(path="root.a.d.t")]
    assert "show timeseries root.a.d.t" in world.database.asked
    world.later()
    assert world.ship() is None


def test_a_clock_that_is_set_forward_and_a_boot_prove_nothing_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the start of a box without a battery, when the database begins as well."""
    world.ship()
    del world.database.series["root.a.d.t"]
    world.later()
    assert world.ship() is None
    world.now += 50 * 365 * 86400
    assert world.ship() is None
    monkeypatch.setattr("sender.schema.server_log.boot_id", lambda: "another")
    world.later()
    assert world.ship() is None
    world.later()
    assert world.ship() == [Dropped(path="root.a.d.t")]


def test_a_list_that_changes_while_it_is_read_proves_nothing_gone(world: World) -> None:
    world.ship()
    world.later()
    kept = dict(world.database.series)

    def come_and_go(statement: str) -> None:
        if statement.startswith("show timeseries limit"):
            world.database.series.pop("root.a.d.t", None)
        else:
            world.database.series = dict(kept)

    world.database.before = come_and_go
    for _ in range(3):
        assert world.ship() is None
        world.later()
    # Nor does one that is there again when it is asked for by itself.
    world.database.before = lambda _: None
    world.database.series = dict(kept)
    world.later()
    del world.database.series["root.a.d.t"]

    def comes_back(statement: str) -> None:
        if statement == "show timeseries root.a.d.t":
            world.database.series = dict(kept)

    assert world.ship() is None
    world.later()
    world.database.before = comes_back
    assert world.ship() is None
    world.later()
    del world.database.series["root.a.d.t"]
    world.database.before = lambda _: None
    assert world.ship() is None, "it was there meanwhile"


def test_another_server_takes_nothing_away(world: World) -> None:
    for number in range(30):
        world.database.make(f"root.a.e.s{number}")
    world.ship()
    world.later()
    world.database.series = {"root.c.d.s": world.database.series["root.a.d.s"]}
    world.database.make("root.c.d.s")
    told = world.ship()
    assert told is not None
    assert [each.path for each in told] == ["root.c.d.s"]
    assert any(
        "33 series that were told are not shown" in each for each in world.notes().now.unread
    )


def test_a_database_that_shows_no_series_any_more_takes_none_away(world: World) -> None:
    world.ship()  # as one of 2.0 that was started anew and has not found its regions
    del world.database.series["root.b.`x.y`.`1`"]
    for _ in range(3):
        world.later()
        assert world.ship() is None
        assert any(
            "1 series that were told are not shown" in each for each in world.notes().now.unread
        )
    world.database.make("root.b.e.s")
    world.later()
    assert world.ship() is not None
    world.later()
    assert world.ship() == [Dropped(path="root.b.`x.y`.`1`")]


@pytest.mark.parametrize("name", ["schema_told_next", "sync_schema_pos"])
def test_what_is_kept_may_be_lost(world: World, name: str) -> None:
    world.ship()
    world.later()
    (world.kept / name).unlink()
    world.database.make("root.a.d.u")
    told = world.ship()
    assert told is not None
    assert len(told) == (6 if name == "schema_told_next" else 1)
    world.later()
    assert world.ship() is None


def test_nonsense_in_place_of_what_is_kept_is_none(world: World) -> None:
    world.ship()
    world.later()
    (world.kept / "schema_told_next").write_bytes(b"nonsense")
    told = world.ship()
    assert told is not None
    assert len(told) == 5


def test_pages_are_put_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_server, "PAGE", 7)
    for number in range(21):
        world.database.make(f"root.a.e.s{number}")
    told = world.ship()
    assert told is not None
    assert sum(isinstance(each, SeriesItem) for each in told) == 24
    world.database.most_rows = 6
    world.later()
    with pytest.raises(StatementError, match="708"):
        world.ship()


def test_what_has_no_place_in_a_schema_is_said_and_not_told_to_be_gone(world: World) -> None:
    world.ship()
    world.later()
    world.database.make("root.a.d.t", "NEWTYPE")
    world.database.make("root.a.d.u", Tags="no json")
    if world.database.version == "2.0":
        world.database.make("root.a.v", ViewType="VIEW")
        world.database.ttls["root.a.d"] = 5
    told = world.ship()
    assert told is not None
    (item,) = told
    assert isinstance(item, SeriesItem)
    assert (item.path, item.tags) == ("root.a.d.u", UNSET)
    said = "\n".join(world.notes().now.unread)
    assert "NEWTYPE): 1" in said
    if world.database.version == "2.0":
        assert "logical views: 1" in said
        assert "TTLs of a part of a database: 1" in said


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((404, b""), ProtocolError),
        ((302, b""), ProtocolError),
        ((500, b"<html>"), ProtocolError),
        ((200, b"<html>"), ProtocolError),
        ((200, b"[]"), ProtocolError),
        ((200, b'{"column_names":["a","b"],"values":[[1],[1,2]]}'), ProtocolError),
        ((200, b'{"column_names":["a"],"values":[["x"]]}'), ProtocolError),
        ((200, b'{"code":500,"message":"no"}'), StatementError),
        ((200, b'{"code":801,"message":"no"}'), UnauthorizedError),
    ],
)
def test_an_answer_that_is_none_is_an_error(
    world: World, answer: tuple[int, bytes], error: type[TsferryError]
) -> None:
    world.database.answer = answer
    with pytest.raises(error, match=r"127\.0\.0\.1|database"):
        world.ship()
    assert not (world.kept / "schema_told_next").exists()


def test_the_password_is_asked_for_and_shown_to_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    world.password = "a-secret"
    with pytest.raises(UnauthorizedError) as wrong:
        world.ship()
    world.database.password = "a-secret"
    assert world.ship()
    world.database.answer = (500, b"")
    world.later()
    with pytest.raises(ProtocolError) as broken:
        world.ship()
    kept = b"".join(each.read_bytes() for each in world.kept.iterdir())
    shown = (
        f"{wrong.value} {broken.value} {caplog.text} {SchemaConfig(password=Secret('a-secret'))}"
    )
    assert "a-secret" not in shown + kept.decode("latin-1")


def test_a_server_that_is_not_there_is_an_error_that_names_it() -> None:
    config = SchemaConfig(server="http://127.0.0.1:9")
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9"):
        list(DatabaseServer(config, threading.Event()).rows("count timeseries"))


def test_a_password_does_not_travel_in_clear_to_another_machine() -> None:
    with pytest.raises(ConfigError, match="insecure"):
        DatabaseServer(SchemaConfig(server="http://db.example.org:1"), threading.Event())


def test_who_is_told_to_stop_stops_and_who_waits_too_long_gives_up(world: World) -> None:
    stop = threading.Event()
    now = [0.0]
    config = SchemaConfig(server=world.database.url)
    server = DatabaseServer(config, stop, clock=lambda: now[0])
    assert list(server.rows("count timeseries"))
    now[0] = 10_000.0
    with pytest.raises(UnreachableError, match="too long"):
        list(server.rows("count timeseries"))
    stop.set()
    with pytest.raises(StoppedError):
        list(server.rows("count timeseries"))
