"""Answers in pages: whole, in order, as of one commit, and in no more memory than a page takes."""

import datetime
import gc
import tracemalloc

import pytest

from common.config import UploadRules
from common.errors import UsageError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import HistoryGoneError, NotATagError
from receiver.metadata.query import ordering
from receiver.metadata.query.answers import Answer
from receiver.metadata.query.questions import ShowTimeseries
from receiver.metadata.sql.executing import execute
from receiver.metadata.sql.parser import parse
from tests.support.metadata import load, path, seen


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
        yield engine


def create(engine, devices, series, tags=None):
    ops = [records.StorageGroupSet("root.sg", if_missing=True)]
    names = tuple(f"s{n}" for n in range(series))
    for device in range(devices):
        own = None if tags is None else tuple(tags(device, n) for n in range(series))
        count = len(names)
        ops.append(
            records.SeriesCreated(
                f"root.sg.d{device:04}",
                names,
                b"\3" * count,
                b"\2" * count,
                b"\1" * count,
                tags=own,
            )
        )
    return engine.commit(ops)


def heat(engine, number, lasts):
    """A file that is loaded with these newest times, by (device, series)."""
    devices = {}
    for (device, name), last in lasts.items():
        devices.setdefault(device, {})[name] = last
    loaded = load(
        path(f"{number}-1-0", sg="root.sg"), number, devices=dict.fromkeys(devices, (0, 1))
    )
    return engine.commit(
        [
            seen(),
            loaded,
            records.SeriesLoaded(
                loaded.physical,
                [
                    records.LoadedDevice(
                        device,
                        False,
                        tuple(series),
                        b"\3" * len(series),
                        b"\2" * len(series),
                        b"\1" * len(series),
                        tuple(series.values()),
                    )
                    for device, series in devices.items()
                ],
            ),
        ]
    )


def paths(answer, size):
    found = []
    while rows := answer.fetch(size):
        assert len(rows) <= size
        found += [row[0] for row in rows]
    return found


def shown(engine, text, at=None):
    return [row[0] for row in execute(engine, text, at=at)]


QUESTIONS = [
    "show timeseries",
    "show timeseries root.sg.*.s1",
    "show timeseries root.**.s2",
    "show timeseries where kind = even",
    "show timeseries where kind contains e order by heat",
    "show timeseries order by heat",
    "show devices",
    "show devices root.sg",
    "show child paths root.sg.*",
    "show child nodes root.sg.d0001",
    "show child nodes root.sg.*",
    "show tag values",
]


@pytest.fixture
def filled(engine):
    create(engine, 7, 5, lambda device, n: {"kind": "odd" if n % 2 else "even", "n": str(n)})
    heat(engine, 1, {("root.sg.d0003", "s1"): 50, ("root.sg.d0001", "s0"): 70})
    heat(engine, 2, {("root.sg.d0001", "s1"): 50, ("root.sg.d0003", "s1"): 60})
    return engine


@pytest.mark.parametrize("text", QUESTIONS)
def test_pages_of_any_size_are_the_whole_answer(filled, text, monkeypatch):
    whole = list(execute(filled, text))
    assert whole
    for ahead in (3, 1 << 14):
        monkeypatch.setattr(ordering, "_AHEAD", ahead)
        for size in (1, 2, 3, 7, 34, 35, 36, 1000):
            answer = Answer(filled, parse(text))
            found = []
            while rows := answer.fetch(size):
                assert len(rows) <= size
                found += rows
            assert found == whole
            assert answer.fetch(size) == []


@pytest.mark.parametrize("text", QUESTIONS)
def test_limit_and_offset_are_a_slice_of_the_answer(filled, text):
    whole = list(execute(filled, text))
    for offset in (0, 1, 3, len(whole) - 1, len(whole), len(whole) + 5):
        for limit in (0, 1, 4, len(whole), 10**18):
            answer = Answer(filled, parse(f"{text} limit {limit} offset {offset}"))
            found = []
            while rows := answer.fetch(3):
                found += rows
            assert found == whole[offset : offset + limit]


@pytest.mark.parametrize("text", QUESTIONS)
def test_an_answer_is_of_one_commit_whatever_comes_meanwhile(filled, text):
    whole = list(execute(filled, text))
    answer = Answer(filled, parse(text))
    found = answer.fetch(2)
    execute(filled, "delete timeseries root.sg.d0001.**, root.sg.*.s2")
    execute(filled, "create timeseries root.sg.d0000.s1a(z) with datatype=INT32 tags(kind=even)")
    execute(filled, "alter timeseries root.sg.d0003.s4 upsert alias=x tags(kind=odd)")
    heat(filled, 3, {("root.sg.d0005", "s0"): 1000})
    while rows := answer.fetch(2):
        found += rows
    assert found == whole
    assert list(execute(filled, text)) != whole
    assert list(execute(filled, text, at=answer.ts)) == whole


def test_series_come_by_heat_then_by_path(filled):
    found = shown(filled, "show timeseries order by heat")
    assert found[:4] == [
        "root.sg.d0001.s0",
        "root.sg.d0003.s1",
        "root.sg.d0001.s1",
        "root.sg.d0000.s0",
    ]
    assert found[3:] == [each for each in shown(filled, "show timeseries") if each not in found[:3]]
    (row,) = execute(filled, "show latest timeseries limit 1")
    assert row[8] == 70
    before = filled.newest_commit
    heat(filled, 3, {("root.sg.d0006", "s4"): -5, ("root.sg.d0001", "s1"): 90})
    assert shown(filled, "show timeseries order by heat limit 2") == [
        "root.sg.d0001.s1",
        "root.sg.d0001.s0",
    ]
    # Before the epoch is hotter than never.
    assert shown(filled, "show timeseries order by heat limit 1 offset 3") == ["root.sg.d0006.s4"]
    assert shown(filled, "show timeseries order by heat", at=before) == found


def test_the_past_is_asked_by_commit_and_by_moment(engine, clock):
    create(engine, 1, 2)
    clock.now += 10
    between = datetime.datetime.fromtimestamp(clock.now, datetime.UTC)
    clock.now += 10
    execute(engine, "create timeseries root.sg.d0000.s9 with datatype=INT32")
    assert len(shown(engine, "show timeseries")) == 3
    assert len(shown(engine, "show timeseries", at=between)) == 2
    assert len(shown(engine, f"show timeseries at {between.isoformat()}")) == 2
    # What the statement says counts more.
    assert len(shown(engine, f"show timeseries at {engine.newest_commit}", at=between)) == 3
    # A time to come is now, and stays so.
    answer = Answer(engine, ShowTimeseries(at=1 << 62))
    execute(engine, "create timeseries root.sg.d0000.s8 with datatype=INT32")
    assert len(paths(answer, 10)) == 3


def test_what_is_no_time_and_no_page_is_refused(filled):
    east = datetime.timezone(datetime.timedelta(hours=14))
    for at in ("soon", -1, "-1", datetime.datetime(1, 1, 1, tzinfo=east), "9" * 30):
        with pytest.raises(UsageError, match="at: "):
            execute(filled, "show devices", at=at)
    for at in (450.5, datetime.date(2026, 1, 31)):
        with pytest.raises(TypeError, match="at: "):
            execute(filled, "show devices", at=at)
    assert list(execute(filled, "count devices", at="2100-01-01")) == [(7,)]
    assert list(execute(filled, "count devices", at=str(filled.newest_commit))) == [(7,)]
    for size in (0, -1):
        with pytest.raises(UsageError, match="from 1 up"):
            execute(filled, "show devices", fetch_size=size)
        with pytest.raises(UsageError, match="from 1 up"):
            execute(filled, "show devices").fetch(size)
    for statement in (None, b"show devices", 5):
        with pytest.raises(TypeError, match="expected a statement"):
            execute(filled, statement)


def test_a_question_below_the_kept_history_has_its_own_error(engine, clock):
    create(engine, 1, 5)
    answer = Answer(engine, ShowTimeseries())
    assert len(answer.fetch(2)) == 2
    clock.now += 200
    execute(engine, "set storage group to root.other")
    engine._upkeep.collect()
    with pytest.raises(HistoryGoneError) as caught:
        answer.fetch(2)
    assert caught.value.extra["oldest"] == engine.oldest_answerable
    with pytest.raises(HistoryGoneError):
        execute(engine, "show timeseries", at=answer.ts)
    assert len(shown(engine, f"show timeseries at {engine.oldest_answerable}")) == 5


def test_a_page_may_have_devices_of_all_depths(engine):
    execute(engine, "set storage group to root.sg")
    ops = [
        records.SeriesCreated(f"root.sg.{'x.' * (n % 4)}d{n}", ("s",), b"\3", b"\2", b"\1")
        for n in range(40)
    ]
    engine.commit(ops)
    found = shown(engine, "show timeseries")
    assert sorted(found) == sorted(f"{op.device}.s" for op in ops)


def test_only_tags_filter(filled):
    execute(filled, "alter timeseries root.sg.d0001.s1 add attributes colour=red")
    for text in (
        "show timeseries where colour = red",
        "show timeseries where colour contains r",
        "count timeseries where colour = red",
        "show timeseries where nowhere = x order by heat",
    ):
        with pytest.raises(NotATagError) as caught:
            list(execute(filled, text))
        assert text.split()[3] in caught.value.message
    assert shown(filled, "show timeseries where kind = nothing") == []
    # Below a path without that tag it is still a tag.
    execute(filled, "create timeseries root.other.d.s with datatype=INT32")
    assert shown(filled, "show timeseries root.other where kind = even") == []


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("text", ["show timeseries", "show timeseries where all=1 order by heat"])
def test_a_long_answer_takes_the_memory_of_a_page(engine, text):
    create(engine, 120, 100, lambda device, n: {"all": "1"})

    def peak(count):
        answer = Answer(engine, parse(f"{text} limit {count}"))
        gc.collect()
        tracemalloc.start()
        seen = 0
        while rows := answer.fetch(500):
            seen += len(rows)
            del rows
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert seen == count
        return most

    peak(1000)
    few, many = peak(6_000), peak(12_000)
    assert many < few * 1.25 + 200_000


@pytest.mark.parametrize(
    ("configured", "before_ack", "expected"),
    [
        (None, False, {"root.a": (None, None), "root.b": (None, None), "root.c": (None, None)}),
        (
            [{"group": "root.b", "upload": "12h"}],
            False,
            {
                "root.a": ("never", "statement"),
                "root.b": ("after 12h", "configuration"),
                "root.c": ("at once", "configuration"),
            },
        ),
        ("at once", True, dict.fromkeys(["root.a", "root.b", "root.c"], ("at once", "before_ack"))),
    ],
)
def test_when_files_are_uploaded_is_shown_as_it_is_in_force(
    tmp_path, configured, before_ack, expected
):
    rules = None if configured is None else UploadRules.parse(configured)
    options = EngineOptions(upload=rules, before_ack=before_ack)
    with Engine.open(tmp_path, options=options, background=False) as engine:
        execute(engine, "set storage group to root.a, root.b, root.c")
        execute(engine, "set upload to root.a never")
        answer = execute(engine, "show upload")
        assert answer.columns == ("storage group", "upload", "set by")
        shown = {path: tuple(rest) for path, *rest in answer}
        assert shown == expected
        some = [row[0] for row in execute(engine, "show upload on root.b, root.c", fetch_size=1)]
        assert some == ["root.b", "root.c"]
        with pytest.raises(UsageError, match="no past"):
            execute(engine, "show upload", at=answer.commit)
