"""Files that a merge wrote, with pages that were taken over, loaded into real servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.compaction.making import device_rows
from tests.live.merge_case import PAGE, MergeCase, table_case, tree_case
from tests.live.recording import answer
from tests.live.scenarios import Scenario, scenarios
from tests.live.server import Server, versions
from tests.live.test_written_files import as_written, asked, bits, normal
from tests.live.written_files import KNOWS

pytestmark = pytest.mark.timeout(900)

LEFT_OUT = ("openedbefore", "deletedseries", "expired")
"""Where docs/ranks.md has other answers below 2.0, where a series is deleted by the schema alone,
and where it is the age that hides points."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    servers = metafunc.config.getoption("servers")
    if servers is None:
        raise pytest.UsageError("tests/live wants --servers DIR: see scripts/live")
    metafunc.parametrize("server", versions(servers), indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    found = Server(
        request.config.getoption("servers") / request.param, tmp_path_factory.mktemp("server")
    )
    with found.running(found.kind.quiet):
        yield found


@pytest.mark.parametrize("target", [1 << 30, 1 << 16], ids=["one", "several"])
@pytest.mark.parametrize("version", [3, 4])
def test_a_server_answers_with_what_was_merged(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, target: int
) -> None:
    knows = KNOWS[".".join(server.version.split(".")[:2])]
    if version > knows.version:
        return
    monkeypatch.setattr(device_rows, "_LEAST_PAGE", PAGE)
    wide = knows if version == knows.version else KNOWS["1.0"]
    group = f"root.m{version}{'some' if target < 1 << 30 else 'one'}"
    case = tree_case(tmp_path, wide, version, group)
    merged = case.merge(target)
    assert {each.version for each in merged.outputs} == {version}
    assert (len(merged.outputs) > 1) == (target < 1 << 30)
    taken = case.taken_over()
    least = 2 * (len(merged.outputs) == 1)  # where a device is cut by time, some is encoded anew
    assert all(taken.get(f"{device}.{name}", 0) >= least for device, name in case.written), taken
    assert sum(taken.values()) > 20
    server.say(f"{server.kind.groups} {group}")
    for path in case.outputs():
        server.say(f"load '{path}'")
    for (device, measurement), points in case.written.items():
        assert asked(server, device, measurement) == normal(points), (device, measurement)


def test_a_server_answers_with_the_rows_of_a_table_that_was_merged(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not server.kind.tables:
        return
    monkeypatch.setattr(device_rows, "_LEAST_PAGE", PAGE)
    case, cells = table_case(tmp_path)
    case.merge(1 << 30)
    taken = case.taken_over()
    assert all(each >= 4 for each in taken.values()), taken
    server.say("create database wm", table=True)
    server.say("use wm", table=True)
    for path in case.outputs():
        server.say(f"load '{path}'", table=True)
    told = server.say("select time, site, unit, running, heat, word from written", table=True)
    found = {}
    for row in told["rows"]:
        at, site, unit, on, heat, word = row[-6:]
        found[site, unit, int(at)] = {
            "running": as_written(on, bool),
            "heat": bits(as_written(heat, float)),
            "word": as_written(word, bytes),
        }
    wanted = {
        key: {name: bits(row.get(name)) for name in ("running", "heat", "word")}
        for key, row in cells.items()
    }
    assert found == wanted


def test_a_server_answers_as_before_when_its_own_files_were_merged(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late data, updates, deletions, all types, aligned devices, tables: in another server."""
    monkeypatch.setattr(device_rows, "_LEAST_PAGE", 1)
    played = [each for each in scenarios(server.kind) if each.name not in LEFT_OUT]
    for each in played:
        created = f"{server.kind.groups} {each.group}"
        server.say(f"create database {each.group}" if each.table else created, table=each.table)
        for statement in (*each.first, *each.second):
            server.say(statement, table=each.table)
    server.quiet()
    before = {each.name: answer(server, each) for each in played}
    cases = {each.name: _merged(server, each, tmp_path / each.name) for each in played}
    taken = {name: sum(case.taken_over().values()) for name, case in cases.items()}
    assert taken["late"] > 4, taken
    assert sum(map(bool, taken.values())) > 3, taken
    other = Server(server.unpacked, tmp_path / "other")
    other.run.mkdir()
    with other.running(other.kind.quiet):
        for each in played:
            created = f"{other.kind.groups} {each.group}"
            other.say(f"create database {each.group}" if each.table else created, table=each.table)
            if each.table:
                other.say(f"use {each.group}", table=True)
                other.say(each.first[0], table=True)  # attributes are in no file
            for path in cases[each.name].outputs():
                other.say(f"load '{path}'", table=each.table)
            assert answer(other, each) == before[each.name], each.name


def _merged(server: Server, scenario: Scenario, directory: Path) -> MergeCase:
    directory.mkdir()
    server.copy(scenario.group, directory / "real")
    real = sorted((directory / "real").rglob("*.tsfile"))
    assert len(real) > 1
    case = MergeCase(directory, 4)
    for path in real:
        case.add_real(path)
    case.merge(1 << 30, scenario.group)
    return case
