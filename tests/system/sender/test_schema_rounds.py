"""The schema of a real sender at a real receiver: log, tags, growth, loss and exchange."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from common.formats.tlogtext import write_slot
from tests.support import warm
from tests.support.binary_mlog import (
    aligned,
    created,
    deleted,
    region_frame,
    storage_group,
    unchecked,
)
from tests.support.schemas import SchemaLog, position, schema_of

CENTRE = str(Path(sys.executable).with_name("tsferry-receiver"))
COMMAND = str(Path(sys.executable).with_name("tsferry-sender"))


@pytest.fixture
def edge(shared, make_edge):
    return make_edge(shared.url)


@pytest.fixture
def log(edge):
    return SchemaLog(edge.schema)


def in_sync(edge, centre, expected) -> None:
    assert {
        path: {key: found.get(key) for key in expected[path]}
        for path, found in schema_of(centre, edge.sg).items()
        if path in expected
    } == expected
    assert set(schema_of(centre, edge.sg)) == set(expected)


def test_names_with_commas_tags_and_a_torn_tail_arrive(shared, edge, log):
    log.write(f"2,{edge.sg}", f"10,{edge.sg},86400000")
    log.series(f"{edge.sg}.d1.s1", 2, alias="temperature", tags={"unit": "c", "w,here": "ü"})
    log.series(f'{edge.sg}.d,2."s.1,5"')
    log.series(f"{edge.sg}.d1.gone")
    log.write(f"1,{edge.sg}.d1.gone", torn=f"0,{edge.sg}.d1.torn,1,0,")
    edge.write(1)
    report = edge.round()
    assert (report.exit_code, report.sent) == (0, 1), report.as_json()
    in_sync(
        edge,
        shared,
        {
            edge.sg: {"ttl": 86_400_000},
            f"{edge.sg}.d1.s1": {
                "type": 2,
                "alias": "temperature",
                "tags": {"unit": "c", "w,here": "ü"},
            },
            f"{edge.sg}.`d,2`.`s.1,5`": {"type": 1, "alias": None, "tags": {}},
        },
    )
    assert edge.round().quiet


def test_a_schema_without_files_gets_a_task_of_its_own(shared, edge, log):
    log.write(f"2,{edge.sg}")
    log.series(f"{edge.sg}.d1.s1")
    report = edge.round()
    assert (report.exit_code, report.sent, len(report.tasks)) == (0, 0, 1)
    assert f"{edge.sg}.d1.s1" in schema_of(shared, edge.sg)
    assert edge.round().quiet
    assert edge.leftovers == []


def test_a_log_that_grows_in_many_rounds_is_sent_once(shared, edge, log):
    log.write(f"2,{edge.sg}")
    sent = 0
    for number in range(5):
        log.series(f"{edge.sg}.d{number}.s1", tags={"n": str(number)})
        report = edge.round()
        sent += report.schema.bytes
        assert report.schema.whole is None or number == 0
    assert sent == log.mlog.stat().st_size
    found = schema_of(shared, edge.sg)
    assert [found[f"{edge.sg}.d{n}.s1"]["tags"] for n in range(5)] == [
        {"n": str(n)} for n in range(5)
    ]
    log.write(f"1,{edge.sg}.d3.s1", f"13,{edge.sg}.d2.s1,two")
    edge.round()
    found = schema_of(shared, edge.sg)
    assert f"{edge.sg}.d3.s1" not in found
    assert found[f"{edge.sg}.d2.s1"]["alias"] == "two"


def test_a_log_longer_than_a_block_arrives_whole(shared, make_edge):
    edge = make_edge(shared.url, transfer={"chunk_bytes": 4096})
    log = SchemaLog(edge.schema)
    log.write(f"2,{edge.sg}")
    for number in range(400):
        tags = {"n": str(number)} if number % 10 == 0 else None
        log.series(f"{edge.sg}.d{number % 7}.s{number}", tags=tags)
    report = edge.round()
    assert report.schema.bytes == log.mlog.stat().st_size
    found = schema_of(shared, edge.sg)
    assert len(found) == 401
    assert found[f"{edge.sg}.d{390 % 7}.s390"]["tags"] == {"n": "390"}


def test_after_a_checkpoint_of_the_database_later_schema_still_arrives(shared, edge, log):
    log.write(f"2,{edge.sg}")
    for number in range(50):
        log.series(f"{edge.sg}.d1.s{number}")
    edge.round()
    log.begin_anew(f"0,{edge.sg}.d1.late,1,0,1,,,")
    report = edge.round()
    assert report.schema.whole is not None
    found = schema_of(shared, edge.sg)
    assert len(found) == 52  # what the old log made is still there, and the new one counts
    log.series(f"{edge.sg}.d1.later")
    assert edge.round().schema.whole is None
    assert f"{edge.sg}.d1.later" in schema_of(shared, edge.sg)


def test_an_old_copy_of_the_log_brings_no_old_deletion_over_living_data(shared, edge, log):
    log.write(f"2,{edge.sg}")
    log.series(f"{edge.sg}.d1.s1", 2)
    log.write(f"1,{edge.sg}.d1.s1")
    old = log.mlog.read_bytes()
    edge.round()
    log.series(f"{edge.sg}.d1.s1", 2, alias="again")
    edge.write(1)  # its data
    edge.round()
    log.mlog.write_bytes(old)
    report = edge.round()
    assert report.schema.whole is not None
    assert schema_of(shared, edge.sg)[f"{edge.sg}.d1.s1"]["alias"] == "again"
    failed = position(shared, edge.uuid)["failed"]
    assert [each["record"] for each in failed] == [f"{edge.sg}.d1.s1"]


def test_tags_that_are_changed_in_place_arrive(shared, edge, log):
    log.write(f"2,{edge.sg}")
    log.series(f"{edge.sg}.d1.s1", tags={"unit": "c"})
    edge.round()
    log.slot({"unit": "f", "more": "x"}, at=0)
    report = edge.round()
    assert report.schema.whole == "tags were changed in place"
    found = schema_of(shared, edge.sg)
    assert found[f"{edge.sg}.d1.s1"]["tags"] == {"unit": "f", "more": "x"}
    assert edge.round().quiet


def test_records_that_fail_are_shown_on_both_sides_and_keep_nothing_back(shared, edge, log):
    log.write(f"2,{edge.sg}", "no record at all")
    log.series(f"{edge.sg}.d1.s1", 3)  # FLOAT; the file has INT64
    log.series(f"{edge.sg}.d1.ok")
    edge.write(1, device=f"{edge.sg}.d2")
    report = edge.round()
    assert (report.exit_code, report.sent) == (0, 1)
    log.series(f"{edge.sg}.d2.s1", 3)
    report = edge.round()
    there = position(shared, edge.uuid)
    assert there["unapplied"] == 2
    reasons = {each["record"]: each["reason"] for each in there["failed"]}
    assert "no operation" in reasons["no record at all"]
    assert "INT64 here, FLOAT in the schema" in reasons[f"{edge.sg}.d2.s1"]
    config = edge.write_config()
    shown = status(config, "--json")["receivers"]["dc1"]["schema"]
    assert shown["unapplied"] == 2
    assert {each["record"] for each in shown["failed"]} == set(reasons)
    text = run(config, "status").stdout
    assert "2 not" in text
    assert "FLOAT in the schema" in text
    centre = shared.call("senders", "schema", edge.uuid)
    assert {each["record"] for each in centre["failed"]} == set(reasons)


def test_the_logs_of_regions_travel_and_what_is_not_read_is_named(shared, edge):
    region = edge.schema / edge.sg / "0"
    region.mkdir(parents=True)
    (region / "tlog.txt").write_bytes(write_slot({"unit": "k"}, {}))
    frames = [
        unchecked(created(f"{edge.sg}.d2.x", alias="warm", offset=0)),
        aligned(f"{edge.sg}.d3", ["a", "b"]),
        region_frame(b"\x3ftemplate"),
    ]
    (region / "mlog.bin").write_bytes(b"".join(frames))
    edge.write(1)
    report = edge.round()
    assert (report.exit_code, report.sent, report.schema.problem) == (0, 1, None)
    found = schema_of(shared, edge.sg)
    assert (found[f"{edge.sg}.d2.x"]["alias"], found[f"{edge.sg}.d2.x"]["tags"]) == (
        "warm",
        {"unit": "k"},
    )
    assert {f"{edge.sg}.d3.a", f"{edge.sg}.d3.b"} <= set(found)
    dump = [CENTRE, "--config", shared.config, "mtree", "dump", "--json"]
    items = subprocess.run(dump, capture_output=True, check=True).stdout.splitlines()
    there = [json.loads(line) for line in items if f"{edge.sg}.d3.a".encode() in line]
    assert [each["aligned"] for each in there] == [True]
    config = edge.write_config()
    shown = status(config, "--json")["receivers"]["dc1"]["schema"]
    assert shown["problem"] is None
    assert any("ConfigNode" in each for each in shown["unread"])
    assert "not read: schema templates: 1 record" in run(config, "status").stdout
    with (region / "mlog.bin").open("ab") as file:
        file.write(unchecked(deleted(f"{edge.sg}.d3.b")))
    assert edge.round().schema.whole is None
    assert f"{edge.sg}.d3.b" not in schema_of(shared, edge.sg)
    assert edge.round().quiet


def test_a_binary_log_travels_and_damage_in_it_keeps_no_file_back(shared, edge):
    edge.write(1)
    mlog = edge.schema / "mlog.bin"
    (edge.schema / "tlog.txt").write_bytes(write_slot({"unit": "k"}, {}))
    log = [storage_group(edge.sg), created(f"{edge.sg}.d1.x", alias="warm", offset=0)]
    mlog.write_bytes(b"".join(log))
    report = edge.round()
    assert (report.exit_code, report.sent, report.schema.problem) == (0, 1, None)
    series = schema_of(shared, edge.sg)[f"{edge.sg}.d1.x"]
    assert (series["alias"], series["tags"]) == ("warm", {"unit": "k"})
    log += [deleted(f"{edge.sg}.d1.x"), created(f"{edge.sg}.d1.y")]
    mlog.write_bytes(b"".join(log))
    report = edge.round()
    assert report.schema.whole is None
    found = schema_of(shared, edge.sg)
    assert f"{edge.sg}.d1.x" not in found
    assert f"{edge.sg}.d1.y" in found
    mlog.write_bytes(log[0][:9] + b"?" + b"".join(log)[10:])
    edge.write(2)
    report = edge.round()
    assert (report.exit_code, report.sent) == (0, 1)
    shown = status(edge.write_config(), "--json")["receivers"]["dc1"]["schema"]
    assert "mlog.bin, byte 0" in shown["problem"]


def test_another_receiver_gets_the_whole_schema(shared, edge, log, centre):
    log.write(f"2,{edge.sg}")
    log.series(f"{edge.sg}.d1.s1")
    edge.round()
    edge.with_url(centre.start())
    report = edge.round()
    assert report.schema.whole is not None
    assert f"{edge.sg}.d1.s1" in schema_of(centre, edge.sg)


def test_resync_sends_the_schema_again(shared, edge, log):
    log.write(f"2,{edge.sg}")
    log.series(f"{edge.sg}.d1.s1", tags={"k": "v"})
    edge.round()
    assert edge.round(forget=True).schema.bytes == 0
    report = edge.round(forget=True, schema=True)
    assert report.schema.bytes == log.mlog.stat().st_size
    assert report.schema.position.unapplied == 0


def test_a_sender_process_ships_its_schema(shared, edge, log):
    log.write(f"2,{edge.sg}")
    log.series(f"{edge.sg}.d1.s1", tags={"k": "v"})
    edge.write(1, device=f"{edge.sg}.d2")
    done = run(edge.write_config(), "sync", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    schema = (report["receivers"]["dc1"] if "receivers" in report else report)["schema"]
    assert schema["applied"] == 2
    assert schema["offset"] == log.mlog.stat().st_size
    assert schema_of(shared, edge.sg)[f"{edge.sg}.d1.s1"]["tags"] == {"k": "v"}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "point",
    [
        "schemaship.noted:1",
        "schemaship.block:1",
        "schemaship.block:2",
        "schemaship.sent:1",
        "task.end.sent:1",
        "task.loaded:1",
        "task.noted:1",
    ],
)
def test_a_sender_that_dies_on_the_way_goes_on_where_it_was(shared, make_edge, point):
    edge = make_edge(shared.url, transfer={"chunk_bytes": 4096})
    log = SchemaLog(edge.schema)
    log.write(f"2,{edge.sg}")
    for number in range(200):
        log.series(f"{edge.sg}.d{number % 3}.s{number}", tags={"n": str(number)})
    edge.write(1, device=f"{edge.sg}.d9")
    done = run(edge.write_config(), "sync", env={"TSFERRY_CRASH_AT": point})
    assert done.returncode == -9
    log.series(f"{edge.sg}.d1.grown")
    for _ in range(3):
        report = edge.round()
        assert report.exit_code == 0, report.as_json()
    assert report.quiet
    found = schema_of(shared, edge.sg)
    assert len(found) == 203
    assert found[f"{edge.sg}.d1.s199"]["tags"] == {"n": "199"}
    assert shared.loaded(edge.uuid) == edge.files
    assert edge.leftovers == []


def run(config: Path, *arguments: str, env: dict[str, str] | None = None):
    return warm.run([COMMAND, "--config", str(config), *arguments], env=env)


def status(config: Path, *arguments: str):
    done = run(config, "status", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_dry_run_says_what_would_travel_of_the_schema_and_changes_nothing(shared, edge, log):
    def dry(*options: str) -> str:
        done = run(config, "sync", "--dry-run", *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    config = edge.write_config()
    assert json.loads(dry("--json"))["schema"] is None
    log.write(f"2,{edge.sg}")
    log.series(f"{edge.sg}.d1.s1")
    before = sorted(edge.root.rglob("*"))
    size = log.mlog.stat().st_size
    plan = json.loads(dry("--json"))["schema"]
    assert (plan["bytes"], plan["problem"]) == (size, None)
    assert plan["whole"] is not None
    assert f"schema {size} B, the whole: nothing of it is there yet" in dry()
    assert sorted(edge.root.rglob("*")) == before
    assert schema_of(shared, edge.sg) == {}
    edge.round()
    assert json.loads(dry("--json"))["schema"] is None
    log.mlog.unlink()
    (edge.schema / "mlog.bin").write_bytes(
        storage_group("root.a") * 2 + b"newer" + b"x" * (2 << 20)
    )
    assert "mlog.bin, byte 62" in dry()
