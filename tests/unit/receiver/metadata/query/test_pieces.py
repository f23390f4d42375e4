"""Searches in pieces: exact, whichever way they go, whatever is committed between two pieces."""

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.paths import device_name
from receiver.metadata.query import ordering, searching
from receiver.metadata.query.answers import Answer
from receiver.metadata.query.row_source import Look
from receiver.metadata.schema.looked_up import pattern_walk
from receiver.metadata.sql.executing import execute
from receiver.metadata.sql.parser import parse
from tests.support.metadata import A, load, path, seen

QUESTIONS = [
    "show timeseries",
    "show timeseries root.sg",
    "show timeseries root.*.*.*",
    "show timeseries root.*.d*.s*",
    "show timeseries root.**.s2",
    "show timeseries root.**.d1.**",
    "show timeseries root.sg.d1.temp",
    "show timeseries where unit = c",
    "show timeseries root.sg.d1 where unit = c",
    "show timeseries root.**.s3 where unit contains ''",
    "show timeseries where serial contains 1",
    "show timeseries order by heat",
    "show timeseries root.sg.d*.* where unit = c order by heat",
    "show devices",
    "show devices root.sg.d1",
    "show devices root.*.d*",
    "show devices root.**.d2",
    "show child paths root.sg",
    "show child paths root.*",
    "show child paths root.**",
    "show child nodes root.sg",
    "show child nodes root.*.*",
    "show child nodes root.**",
    "show storage group",
    "show storage group root.s*",
    "show storage group root.other",
    "show ttl",
    "show ttl on root.sg, root.*, root.nowhere",
    "count storage group",
    "show tag keys",
    "show tag keys root.sg.d1",
    "show tag values",
    "show tag values root.sg.d*.s1",
    "show tag values with key = serial",
    "count timeseries",
    "count timeseries root.**.s1",
    "count timeseries where unit = c",
    "count timeseries group by level = 0",
    "count timeseries group by level = 1",
    "count timeseries group by level = 2",
    "count timeseries group by level = 3",
    "count timeseries group by level = 9",
    "count timeseries root.*.d2 group by level = 2",
    "count timeseries where serial contains 1 group by level = 2",
    "count devices",
    "count devices root.sg.d*",
    "count nodes root.** level = 2",
    "count nodes root.sg.d1 level = 3",
    "show " + "timeseries root" + ".**" * 70,
    "count timeseries root" + ".**" * 70 + ".s1",
]


class Clock:
    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def engine(tmp_path, clock):
    options = EngineOptions(history=100.0, storage_group_level=1)
    with Engine.open(
        tmp_path, options=options, clock=clock, monotonic=clock, background=False
    ) as engine:
        fill(engine)
        yield engine


def fill(engine):
    for group in ("sg", "other"):
        ops = [records.StorageGroupSet(f"root.{group}")]
        for d in range(3):
            tags = [{"unit": "cf"[s % 2], "serial": f"{group}-{d}-{s}"} for s in range(4)]
            names, codes = ("s0", "s1", "s2", "s3"), (b"\3" * 4, b"\2" * 4, b"\1" * 4)
            ops.append(records.SeriesCreated(f"root.{group}.d{d}", names, *codes, tags=tuple(tags)))
        engine.commit(ops)
    execute(engine, "create timeseries root.sg.d1.in.s1 with datatype=INT32")
    execute(engine, "create timeseries root.sg.d1.`a.b`(temp) with datatype=INT32")
    loaded = load(path("1-1-0", sg="root.sg"), 1, devices={"root.sg.d1": (0, 9)})
    device = records.LoadedDevice(
        "root.sg.d1", False, ("s0", "s2"), b"\3\3", b"\2\2", b"\1\1", (5, 9)
    )
    engine.commit([seen(), loaded, records.SeriesLoaded(loaded.physical, [device])])
    execute(engine, "delete timeseries root.other.d0.**, root.sg.d2.s1")
    execute(engine, "create timeseries root.other.d0.s9 with datatype=TEXT tags(unit=c)")


def change(engine, number):
    """A commit that would show in every answer, were it seen."""
    execute(engine, f"create timeseries root.sg.d1.new{number} with datatype=TEXT tags(unit=c)")
    if number % 3 == 1:
        execute(engine, "delete timeseries root.sg.d0.**, root.sg.d1.s2")
    if number % 3 == 2:
        execute(
            engine,
            "create aligned timeseries root.sg.d0(s0 INT64 tags(unit=f), s1 INT64, s7 INT64)",
        )
        execute(engine, "create timeseries root.sg.d1.s2 with datatype=INT64 tags(serial=none)")
    execute(engine, f"alter timeseries root.sg.d1.s0 upsert alias=t{number} tags(unit=u{number})")
    execute(engine, f"set storage group to root.s{number}")
    execute(engine, f"set ttl to root.sg {number}")


def answer(engine, text, at=None):
    return list(execute(engine, text, at=at))


def small(monkeypatch):
    for module, name, value in (
        (searching, "_COLUMN", 5),
        (searching, "_SINGLE", 2),
        (searching, "_FEW", 3),
        (ordering, "_SINGLE", 2),
        (ordering, "_HEATS", 3),
        (ordering, "_WALKED", {"leaf": 2, "node": 2, "device": 1}),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.mark.few(50)
@pytest.mark.parametrize("by", ["walk", "columns", "columns and walk"])
@pytest.mark.parametrize("text", QUESTIONS)
def test_every_way_of_searching_finds_the_same(engine, text, by, monkeypatch):
    past = engine.newest_commit
    expected = answer(engine, text)
    small(monkeypatch)
    if by != "walk":
        monkeypatch.setattr(pattern_walk, "_BUDGET", 0)
    if by == "columns and walk":
        monkeypatch.setattr(ordering, "_SORTED", 0)
    assert answer(engine, text) == expected
    change(engine, 1)
    change(engine, 2)
    assert answer(engine, text, past) == expected


@pytest.mark.few(35)
@pytest.mark.parametrize("ordered", ["sorted", "met"])
@pytest.mark.parametrize("text", QUESTIONS)
def test_an_answer_is_of_one_commit_whatever_comes_between_two_looks(
    engine, text, ordered, monkeypatch
):
    expected = answer(engine, text)
    small(monkeypatch)
    monkeypatch.setattr(pattern_walk, "_BUDGET", 0)
    if ordered == "met":
        monkeypatch.setattr(ordering, "_SORTED", 0)
    asked = Answer(engine, parse(text))
    looked = Look.__exit__
    looks = []

    def and_then_change(look, *args):
        looked(look, *args)
        looks.append(1)
        if len(looks) < 8:
            change(engine, len(looks))
            engine.collect()

    monkeypatch.setattr(Look, "__exit__", and_then_change)
    found = []
    while rows := asked.fetch(4):
        found += rows
    assert found == expected


def test_history_that_goes_in_the_middle_of_a_search_ends_it(engine, clock, monkeypatch):
    small(monkeypatch)
    asked = Answer(engine, parse("show timeseries order by heat"))
    looked = Look.__exit__

    def and_then_forget(look, *args):
        looked(look, *args)
        clock.now += 60
        change(engine, 1 + int(clock.now))
        engine.collect()

    monkeypatch.setattr(Look, "__exit__", and_then_forget)
    with pytest.raises(HistoryGoneError):
        asked.fetch(10)


def test_a_search_lets_others_in_between_its_pieces(engine, monkeypatch):
    small(monkeypatch)
    monkeypatch.setattr(pattern_walk, "_BUDGET", 0)
    monkeypatch.setattr(ordering, "_SORTED", 0)
    rows = len(engine._state.schema.tree)
    looks = []
    looked = Look.__enter__
    monkeypatch.setattr(Look, "__enter__", lambda look: looks.append(1) or looked(look))
    for text in QUESTIONS:
        if "order by" in text or "level = 3" in text or "show tag values root" in text:
            looks.clear()
            assert answer(engine, text)
            assert len(looks) > rows // 5


def test_show_devices_says_whose_a_device_is(engine):
    before = engine.newest_commit
    owners = {row[0]: row[-1] for row in answer(engine, "show devices")}
    assert execute(engine, "show devices").columns[-1] == "owner"
    assert owners == {device: A if device == "root.sg.d1" else None for device in owners}
    engine.commit([records.OwnerSet("root.sg.d1", None, "test")])
    assert {row[-1] for row in answer(engine, "show devices")} == {None}
    # As a file names it, not as the tree does.
    nodes = ("root", "/db", "table", ":a")
    engine.commit(
        [
            records.StorageGroupSet("root.`/db`"),
            records.SeriesCreated("root.`/db`.table.`:a`", ("m",), b"\3", b"\2", b"\1"),
            records.OwnerSet(device_name(nodes), A, "test"),
        ]
    )
    assert answer(engine, "show devices root.`/db`")[0][-1] == A
    # It was not theirs at the time.
    assert answer(engine, "show devices root.`/db`", engine.newest_commit - 1) == []
    engine.commit([records.OwnerSet("root.other.d1", A, "test")])
    assert answer(engine, "show devices root.other.d1", before)[0][-1] is None
