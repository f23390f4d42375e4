"""Deletions that a receiver holds, and deletion files that shrank, as a real sender says it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.edge import Edge
from tests.support.oracle import rows_read
from tests.support.procs import children
from tests.system.sender.test_daemon import daemon
from tests.system.sender.test_rounds import call as called
from tests.system.test_lost_state import operator

EVERYTHING = f"DELETION,%s.d1.*,{2**63 - 1},{-(2**63)},{2**63 - 1}\n"
A_PART = f"DELETION,%s.d1.*,{2**63 - 1},1000,1001\n"


@pytest.fixture
def processes(tmp_path):
    with children(tmp_path) as made:
        yield made


def call(config: Path, *arguments: str) -> tuple[int, str]:
    done = called(config, *arguments)
    return done.returncode, done.stdout


def delete(edge: Edge, path: str, line: str) -> Path:
    mods = edge.data / f"{path}.mods"
    mods.write_text(line % edge.sg)
    return mods


def test_held_records_are_named_in_each_round_until_the_centre_decides(
    centre, make_edge, processes
):
    centre.config.write_text(centre.config.read_text().replace("max_fraction = 1\n", ""))
    edge = make_edge(centre.start())
    path = edge.write(1)
    assert edge.round().exit_code == 0
    delete(edge, path, EVERYTHING)  # all that there is
    report = edge.round()
    (held,) = report.as_json()["held"]
    assert (report.exit_code, len(report.tasks)) == (6, 1)
    assert held["file"] == f"deletion files of {edge.sg}"
    (listed,) = centre.call("deletes", "list")["lists"]
    assert f"tsferry-receiver deletes allow {listed['digest']}" in held["reason"]
    config = edge.write_config()
    code, text = call(config, "sync", "--dry-run", "--json")
    assert (code, json.loads(text)["held"]) == (0, [held])
    code, text = call(config, "sync")  # which has nothing to do
    assert (code, f"held: {held['file']}: {held['reason']}" in text) == (6, True)
    _, config = daemon(processes, edge, "daemon.period=1h")
    code, text = call(config, "sync", "--json")
    assert (code, json.loads(text)["held"]) == (6, [held])
    code, text = call(config, "status", "--json")
    assert (code, json.loads(text)["receivers"]["dc1"]["held_records"]) == (6, [held])
    assert f"held            {held['file']}: {held['reason']}" in call(config, "status")[1]
    centre.call("deletes", "allow", listed["digest"])
    code, text = call(config, "sync", "--json")
    assert (code, json.loads(text)["held"]) == (0, [])
    assert "  held  " not in call(config, "status")[1]


@pytest.mark.parametrize("verdict", ["allow", "drop"])
def test_what_is_bad_at_the_centre_and_gone_here_is_lost_while_its_end_is_held(
    centre, make_edge, verdict
):
    centre.config.write_text(centre.config.read_text().replace("max_fraction = 1\n", ""))
    edge = make_edge(centre.start(), propagate_deletes="all")
    paths = [edge.write(1), edge.write(2)]
    assert edge.round().complete_until == 2009
    centre.stop()
    (bad,) = centre.data.glob("sequence/**/*-1-0-0.*.tsfile")
    bad.unlink()
    assert operator(centre, "fsck", "--repair") == 0
    centre.start()
    for path in paths:
        edge.remove(path)
    assert [each.file for each in edge.round().held] == paths
    report = edge.round()  # which is told what came of the one before
    assert (report.exit_code, [each.file for each in report.lost]) == (3, paths[:1])
    assert report.complete_until == 1000
    config = edge.write_config(propagate_deletes="all")
    code, text = call(config, "status", "--check")
    assert (code, text.partition(" | ")[0]) == (
        2,
        "TSFERRY CRITICAL - 1 file is lost; 2 deletions are held by a receiver",
    )
    assert "complete until  1000 " in call(config, "status")[1]
    assert [each["path"] for each in centre.call("lost", "list")["files"]] == paths[:1]
    (waiting,) = centre.call("deletes", "list")["lists"]
    centre.call("deletes", verdict, waiting["digest"])
    edge.round()
    report = edge.round()
    # What was kept is lost still; what was to go is no loss.
    assert [each.file for each in report.lost] == (paths[:1] if verdict == "drop" else [])
    assert edge.listed == []


def test_a_deletion_file_that_shrank_or_vanished_is_named_while_its_file_stands(shared, make_edge):
    edge = make_edge(shared.url)
    path, other = edge.write(1), edge.write(2)
    mods = delete(edge, path, A_PART)
    assert edge.round().exit_code == 0
    config = edge.write_config()
    assert "deletion file" not in call(config, "status")[1]
    mods.write_bytes(b"")
    words = "its deletion file {}; what it said still holds at the receiver"
    for what in ("shrank", "vanished"):
        named = [{"file": path, "reason": words.format(what)}]
        for _ in range(2):
            assert f"{path}: {words.format(what)}" in call(config, "status")[1]
            found = json.loads(call(config, "status", "--json")[1])["receivers"]["dc1"]
            assert found["kept_deletions"] == named
            report = edge.round()
            assert (report.exit_code, report.as_json()["kept_deletions"]) == (0, named)
        mods.unlink(missing_ok=True)
    waits = edge.write_config(deletion_files="wait")
    assert "deletion file" not in call(waits, "status")[1]  # it tells of none
    edge.remove(path)
    assert edge.listed == sorted([path, other])
    assert edge.round().kept_deletions == []


@pytest.mark.few(2, always="nul-False")
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("damage", ["link", "nul", "unknown"])
def test_a_file_whose_deletions_cannot_be_read_waits_and_stops_no_reader(
    centre, make_edge, damage, listed
):
    edge = make_edge(centre.start())
    other, path = edge.write(1), edge.path(2)
    if listed:
        edge.write(2)
        assert edge.round().sent == 2
    edge.write(2)
    mods = edge.data / f"{path}.{'mods2' if damage == 'unknown' else 'mods'}"
    if damage == "link":
        beside = edge.root / "elsewhere"
        beside.write_text(EVERYTHING % edge.sg)
        mods.symlink_to(beside)
    elif damage == "nul":  # as a power cut leaves it, and what came later behind it
        mods.write_bytes(bytes(30) + (EVERYTHING % edge.sg).encode())
    else:
        mods.write_bytes(b"\x07" + bytes(40))
    report = edge.round()
    assert (report.waiting, report.sent, report.exit_code) == (1, 0 if listed else 1, 0)
    assert edge.listed == sorted([other, path] if listed else [other])
    assert (
        f"{path}: its deletion file ({mods.suffix[1:]})" in call(edge.write_config(), "status")[1]
    )
    times = {row["time"] for row in rows_read(centre.root / "schema")}
    assert {*range(1000, 1010), *(range(2000, 2010) if listed else ())} == times
    mods.unlink()
    report = edge.round()
    assert (report.waiting, edge.listed) == (0, sorted([other, path]))
