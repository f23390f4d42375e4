"""What went wrong in the metadata of others, each as the promise that it broke.

All by way of an engine as a user opens it, and of statements as a user writes them.
"""

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from common import durable
from common.errors import DamagedError, NoSpaceError, TsferryError
from receiver.metadata.engine import Engine
from receiver.metadata.kv.embedded import EmbeddedKV
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import HistoryGoneError, MemoryLimitError, NewerLogError
from receiver.metadata.sql.executing import execute
from tests.support import metadata as files
from tests.support import tiers
from tests.support.asking import column, number, refused, rows, run

SERIES = "with datatype=FLOAT, encoding=GORILLA, compression=SNAPPY"
QUESTIONS = [
    "show timeseries",
    "show devices",
    "show storage group",
    "show ttl",
    "show tag values",
    "count timeseries",
]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(durable.flushing, "_failure", None)
    return tmp_path / "schema"


def answers(engine, at=None):
    return {sql: rows(engine, sql, at) for sql in QUESTIONS}


def filled(home, **options):
    engine = Engine.open(home, options=EngineOptions(**options))
    run(
        engine,
        "set storage group to root.plant",
        f"create timeseries root.plant.d1.s1(temp) {SERIES} "
        "tags(unit=c, at='hall, north') attributes(maker=x)",
        f"create timeseries root.plant.d1.s2 {SERIES} tags(unit=k)",
        "set ttl to root.plant 5000",
    )
    return engine


def until(holds, seconds=120.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


def newest_checkpoint(home):
    found = home.glob("mtree.snapshot-*.tsf")
    return max(found, key=lambda path: int(path.stem.split("-")[1]))


# -- 1: the tree changed before the log was written; files went before their deletion was logged --


@pytest.mark.parametrize(
    "sql",
    [
        "set storage group to root.other",
        f"create timeseries root.plant.d1.s3(third) {SERIES} tags(new=1)",
        "delete timeseries root.plant.d1.s1",
        "delete storage group root.plant",
        "set ttl to root.plant 1",
        "alter timeseries root.plant.d1.s1 upsert alias=t tags(unit=f, more=1) attributes(maker=y)",
    ],
)
def test_a_change_that_cannot_be_logged_is_not_seen_in_the_tree_nor_in_the_index(
    home, monkeypatch, sql
):
    engine = filled(home)
    before, newest = answers(engine), engine.newest_commit
    with monkeypatch.context() as broken:

        def full(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        for call in ("write", "pwrite", "writev", "pwritev"):
            broken.setattr(os, call, full)
        with pytest.raises(NoSpaceError):
            execute(engine, sql)
    assert answers(engine) == before
    assert engine.newest_commit == newest
    execute(engine, sql)
    after = answers(engine)
    assert after != before
    engine.close()
    with Engine.open(home) as again:
        assert answers(again) == after
        assert answers(again, at=newest) == before


# -- 2: a checkpoint that could not be read gave an empty tree; the old one went too early --------


def damage(file, how):
    content = file.read_bytes()
    if how == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif how == "flip":
        at = len(content) // 2
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    elif how == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()


@pytest.mark.parametrize("how", ["cut", "flip", "empty", "gone"])
def test_a_damaged_checkpoint_costs_nothing(home, how):
    engine = filled(home)
    run(engine, "create snapshot for schema", f"create timeseries root.plant.d2.s1 {SERIES}")
    run(engine, "create snapshot for schema", f"create timeseries root.plant.d3.s1 {SERIES}")
    expected = answers(engine)
    engine.close()
    damage(newest_checkpoint(home), how)
    for _ in range(2):
        with Engine.open(home) as again:
            assert answers(again) == expected
            assert column(again, "show timeseries where unit=c") == ["root.plant.d1.s1"]


@pytest.mark.parametrize("history", [0.001, 1e9])
@pytest.mark.parametrize("how", ["cut", "flip", "empty"])
def test_damage_to_every_checkpoint_is_an_error_that_names_the_files_and_no_empty_tree(
    home, how, history
):
    engine = filled(home, history=history)
    for device in range(2, 6):
        run(engine, f"create timeseries root.plant.d{device}.s1 {SERIES}")
        time.sleep(0.002)  # beyond the shorter history
        engine.collect()
        run(engine, "create snapshot for schema")
    expected = answers(engine)
    engine.close()
    names = [path.name for path in home.glob("mtree.snapshot-*.tsf")]
    assert len(names) == 2
    assert (home / "mlog-1.tsf").exists() is (history > 1)
    for name in names:
        damage(home / name, how)
    if history > 1:  # the log has everything
        with Engine.open(home) as again:
            assert answers(again) == expected
        return
    with pytest.raises(DamagedError) as caught:
        Engine.open(home)
    assert all(name in caught.value.message for name in names)


def test_the_checkpoint_before_stays_until_the_new_one_is_whole(home, monkeypatch):
    engine = filled(home)
    run(engine, "create snapshot for schema")
    there = newest_checkpoint(home)
    run(engine, f"create timeseries root.plant.d2.s1 {SERIES}")
    expected = answers(engine)
    with monkeypatch.context() as broken:

        def failing(*_, **__):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        for call in ("rename", "replace"):
            broken.setattr(os, call, failing)
        from common import beneath

        broken.setattr(beneath, "_rename_noreplace", failing)
        with pytest.raises((TsferryError, OSError)):
            execute(engine, "create snapshot for schema")
    assert there.exists()
    run(engine, f"create timeseries root.plant.d3.s1 {SERIES}")
    assert engine.failed is None, "a checkpoint that fails is no reason to stop taking commits"
    after = answers(engine)
    engine.close()
    with Engine.open(home) as again:
        assert answers(again) == after
        assert after != expected


def test_the_tag_index_comes_back_with_the_checkpoint(home):
    engine = filled(home)
    run(engine, "alter timeseries root.plant.d1.s2 set unit=f", "create snapshot for schema")
    engine.close()
    with Engine.open(home) as again:
        assert column(again, "show timeseries where unit=c") == ["root.plant.d1.s1"]
        assert column(again, "show timeseries where unit=k") == []
        assert column(again, "show timeseries where unit=f") == ["root.plant.d1.s2"]
        assert column(again, "show timeseries where at contains ', n'") == ["root.plant.d1.s1"]


# -- 3: commas in names broke the records ---------------------------------------------------------


def test_names_with_commas_and_quotes_survive_everything(home):
    names = ["`a,b`", "`,`", "`1,2,3`", "`a``,``b`", '`"`', "`a;b`", "`=`", "`a(b)`", "`-- x`"]
    engine = Engine.open(home)
    run(engine, "set storage group to root.plant")
    for at, name in enumerate(names):
        run(
            engine,
            f"create timeseries root.plant.d1.{name}(`al,{at}`) {SERIES} tags(`k,{at}`='v,{at}')",
        )
        if at == len(names) // 2:
            run(engine, "create snapshot for schema")
    expected = sorted(f"root.plant.d1.{name}" for name in names)
    engine.close()
    for _ in range(2):
        with Engine.open(home) as again:
            assert sorted(column(again, "show timeseries")) == expected
            for at, name in enumerate(names):
                path = f"root.plant.d1.{name}"
                assert column(again, f"show timeseries where `k,{at}`='v,{at}'") == [path]
                assert column(again, f"show timeseries root.plant.d1.`al,{at}`") == [path]
            run(again, "create snapshot for schema")


# -- 4: a torn log tail after kill -9 stopped the start -------------------------------------------

_CHILD = """
import sys, threading
from pathlib import Path
from receiver.metadata.engine import Engine
from receiver.metadata.sql.executing import execute
engine = Engine.open(Path(sys.argv[1]))
execute(engine, "set storage group to root.plant")
lock = threading.Lock()
def work(thread):
    number = 0
    while True:
        path = f"root.plant.d{thread}.s{number}"
        tags = f"tags(n=v{number % 7})"
        execute(engine, f"create timeseries {path}(a{number}) with datatype=FLOAT {tags}")
        with lock:
            print(path, flush=True)
        number += 1
for thread in range(4):
    threading.Thread(target=work, args=(thread,), daemon=True).start()
while True:
    engine.checkpoint()
    threading.Event().wait(0.05)
"""


def test_whenever_it_is_killed_it_starts_again_with_all_that_was_acknowledged(home):
    acknowledged: set[str] = set()
    for turn in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(home)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        wanted = 20 + 37 * turn
        seen = []
        for line in child.stdout:
            seen.append(line.strip())
            if len(seen) >= wanted:
                break
        child.send_signal(signal.SIGKILL)
        seen += [line.strip() for line in child.stdout if line.endswith("\n")]
        child.wait()
        child.stdout.close()
        acknowledged |= set(seen)
        with Engine.open(home) as engine:
            found = rows(engine, "show timeseries")
            paths = {row["timeseries"] for row in found}
            assert acknowledged <= paths
            for value in range(7):
                tagged = column(engine, f"show timeseries where n=v{value}")
                assert tagged == [
                    row["timeseries"] for row in found if row["tags"] == {"n": f"v{value}"}
                ]
            run(engine, "delete storage group root.plant")
        acknowledged.clear()


# -- 5: deleted series came back; counters stayed wrong -------------------------------------------


def test_what_was_deleted_stays_deleted_and_is_not_counted(home):
    engine = filled(home)
    with engine.reading() as state:
        empty_of = state.schema.memory.used
    for turn in range(3):
        run(engine, f"create timeseries root.plant.d9.s{turn}(a{turn}) {SERIES} tags(t{turn}=v)")
        with engine.reading() as state:
            assert state.schema.memory.used > empty_of
        run(engine, f"delete timeseries root.plant.d9.s{turn}")
        if turn == 1:
            run(engine, "create snapshot for schema")
        engine.close()
        engine = Engine.open(home)
        assert number(engine, "count timeseries") == 2
        assert number(engine, "count devices") == 1
        assert column(engine, "show tag keys") == ["at", "unit"]
        with engine.reading() as state:
            assert state.schema.memory.used == empty_of
            assert state.schema.columns.series_count == 2
    engine.close()


def test_the_memory_limit_counts_what_lives_after_deletions_and_restarts(home):
    limit = 30_000
    engine = Engine.open(home, options=EngineOptions(max_memory=limit))
    run(engine, "set storage group to root.plant")

    def fill():
        made = 0
        while True:
            try:
                run(engine, f"create timeseries root.plant.d{made}.s {SERIES}")
            except MemoryLimitError:
                return made
            made += 1

    first = fill()
    assert first > 10
    refused_one = f"create timeseries root.plant.d{first}.s {SERIES}"
    refused(engine, refused_one, kind=MemoryLimitError)
    refused(engine, f"set storage group to root.{'x' * 2000}", kind=MemoryLimitError)
    run(engine, "delete timeseries root.plant.d1.s")
    run(engine, f"create timeseries root.plant.d1.s {SERIES}")
    refused(engine, refused_one, kind=MemoryLimitError)
    engine.close()
    engine = Engine.open(home, options=EngineOptions(max_memory=limit))
    refused(engine, refused_one, kind=MemoryLimitError)
    run(engine, "delete timeseries root.plant.**")
    assert fill() == first
    engine.close()


# -- 6: the checkpoint needed two conditions at once ----------------------------------------------


def test_a_busy_engine_makes_checkpoints_by_itself(home):
    with filled(home, checkpoint_entries=20, checkpoint_rest=1e9) as engine:
        for device in range(30):
            run(engine, f"create timeseries root.plant.x{device}.s1 {SERIES}")
        until(lambda: list(home.glob("mtree.snapshot-*.tsf")))


def test_a_resting_engine_makes_one_of_what_is_new(home):
    with filled(home, checkpoint_entries=1 << 40, checkpoint_rest=0.2):
        until(lambda: list(home.glob("mtree.snapshot-*.tsf")))


# -- 7: the alias of one series was the name of another; see also the first -----------------------


def test_names_and_aliases_of_a_device_never_meet_even_when_they_race(home):
    with Engine.open(home) as engine:
        run(engine, "set storage group to root.plant")
        for turn in range(30):
            start = threading.Barrier(4)
            device = f"root.plant.d{turn}"
            tries = [
                f"create timeseries {device}.same {SERIES}",
                f"create timeseries {device}.s1(same) {SERIES}",
                f"create timeseries {device}.s2(same) {SERIES}",
                f"create timeseries {device}.same.s {SERIES}",
            ]
            done: list[str] = []

            def attempt(sql, start=start, done=done):
                start.wait(60)
                try:
                    execute(engine, sql)
                except TsferryError:
                    return
                done.append(sql)

            threads = [threading.Thread(target=attempt, args=(sql,)) for sql in tries]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert len(done) == 1, done


# -- 8: a file loaded before its schema -----------------------------------------------------------


def test_a_file_brings_its_storage_group_and_series_in_the_commit_that_loads_it(home):
    with Engine.open(home) as engine:
        engine.commit([files.seen()])
        before = engine.newest_commit
        load = files.load(devices={"root.t.d1": (1, 9)})
        series = records.LoadedDevice("root.t.d1", False, ["s1"], b"\x03", b"\x08", b"\x01", [9])
        ts = engine.commit(
            [
                load,
                records.StorageGroupSet("root.t", if_missing=True),
                records.SeriesLoaded(load.physical, [series]),
            ]
        )
        assert column(engine, "show timeseries") == ["root.t.d1.s1"]
        assert number(engine, "count timeseries", at=ts) == 1
        assert number(engine, "count timeseries", at=before) == 0
        with engine.reading() as state:
            assert state.file_table.totals().files == 1


# -- 9: deadlocks ---------------------------------------------------------------------------------


def test_everything_at_once_comes_to_an_end(home):
    with filled(home, checkpoint_entries=50, history_commits=20, history=0.001) as engine:
        end = time.monotonic() + (3 if tiers.is_long() else 1)
        problems: list[BaseException] = []

        def repeat(work):
            def loop():
                turn = 0
                while time.monotonic() < end:
                    try:
                        work(turn)
                    except TsferryError:
                        pass
                    except BaseException as error:
                        problems.append(error)
                        return
                    turn += 1

            return loop

        def reading(_):
            with engine.reading(), engine.reading() as state:
                assert state.schema.memory.used >= 0

        works = [
            lambda turn: run(
                engine, f"create timeseries root.plant.a{turn}.s {SERIES} tags(k=v{turn})"
            ),
            lambda turn: run(engine, f"delete timeseries root.plant.a{turn}.s"),
            lambda turn: run(
                engine, f"alter timeseries root.plant.d1.s1 upsert tags(unit=u{turn})"
            ),
            lambda turn: run(engine, f"set ttl to root.plant {turn + 1}"),
            lambda _: engine.checkpoint(),
            lambda _: answers(engine),
            lambda _: answers(engine, at=engine.newest_commit),
            lambda turn: EmbeddedKV(engine).save(f"k{turn % 5}", "v"),
            reading,
        ]
        threads = [threading.Thread(target=repeat(work), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a thread hangs"
        assert not problems, problems
        expected = answers(engine)
    with Engine.open(home) as again:
        assert answers(again) == expected


# -- 10: a time going backwards was accepted, and every later start failed ------------------------


def test_a_time_that_goes_backwards_is_refused_when_it_is_written(home):
    given = iter([100, 200, 150, 200, 300])
    with Engine.open(home, allocate=lambda _: next(given)) as engine:
        run(engine, "set storage group to root.a")
        assert engine.newest_commit == 200
        for _ in range(2):
            refused(engine, "set storage group to root.b")
        run(engine, "set storage group to root.c")
        assert engine.newest_commit == 300
    for _ in range(2):
        with Engine.open(home) as again:
            assert column(again, "show storage group") == ["root.a", "root.c"]
            run(again, "create snapshot for schema")


# -- 11: versions were kept without a limit -------------------------------------------------------


def test_old_versions_go_and_what_is_within_the_history_stays(home):
    now = 1_000_000.0

    def clock():
        return now

    with Engine.open(home, clock=clock, options=EngineOptions(history=100.0)) as engine:
        kv = EmbeddedKV(engine)
        run(engine, "set storage group to root.plant")
        stamps = []
        for turn in range(250):
            now += 1
            stamps.append(kv.save("key", f"value {turn}"))
            run(
                engine,
                f"create timeseries root.plant.d.s {SERIES}",
                "delete timeseries root.plant.d.s",
            )
        engine.collect()
        with pytest.raises(HistoryGoneError) as caught:
            kv.load("key", stamps[0])
        oldest = caught.value.extra["oldest"]
        with pytest.raises(HistoryGoneError):
            execute(engine, "count timeseries", at=stamps[0])
        kept = [ts for ts in stamps if ts >= oldest]
        assert 90 <= len(kept) <= 110
        for ts in kept:
            assert kv.load("key", ts) == f"value {stamps.index(ts)}"
        run(engine, "create snapshot for schema")
        size = newest_checkpoint(home).stat().st_size
        for turn in range(250):
            now += 1
            kv.save("key", f"value {turn}")
            run(
                engine,
                f"create timeseries root.plant.d.s {SERIES}",
                "delete timeseries root.plant.d.s",
            )
        engine.collect()
        run(engine, "create snapshot for schema")
        assert newest_checkpoint(home).stat().st_size < size * 1.5


# -- 14: what was not known was deleted as an orphan ----------------------------------------------


def test_what_it_does_not_know_it_leaves_alone(home):
    filled(home).close()
    strange = {
        "notes.txt": b"mine",
        "mlog.bin": b"of another program",
        "mtree.snapshot.bin": b"likewise",
        "tlog.txt": bytes(700),
        "mtree.snapshot-x.tsf": b"?",
    }
    for name, content in strange.items():
        (home / name).write_bytes(content)
    with Engine.open(home) as engine:
        run(engine, "create snapshot for schema", f"create timeseries root.plant.d8.s {SERIES}")
        run(engine, "create snapshot for schema")
    assert {name: (home / name).read_bytes() for name in strange} == strange


def test_a_log_of_a_newer_version_is_refused_with_its_version_and_left_as_it_is(home):
    filled(home).close()
    log = next(home.glob("mlog-*.tsf"))
    content = log.read_bytes()
    newer = content[:8] + (9).to_bytes(4, "little") + content[12:]
    log.write_bytes(newer)
    with pytest.raises(NewerLogError, match="version 9"):
        Engine.open(home)
    assert log.read_bytes() == newer
