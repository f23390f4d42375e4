"""What is exported, loaded into real servers: they answer with the rows that readers see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.console.cli import run
from receiver.cli.commands import cli
from receiver.metadata.model import records
from receiver.metadata.sql.executing import execute
from tests.live.server import Server, versions
from tests.live.test_written_files import as_written
from tests.live.written_files import KNOWS
from tests.support.spark_world import NORTH, World
from tests.support.tsfile_bytes import build

pytestmark = pytest.mark.timeout(900)

T = 1_700_000_000_000
EVER = "time >= 1690000000000 and time < 1710000000000"
D1, D2 = "root.ex.d1", "root.ex.d2"


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


def exported(world: World, into: Path, version: int, capsys: Any, *more: str) -> Any:
    words = ["--config", str(world.config), "export", str(into), "--version", str(version)]
    assert run(cli, "tsferry-receiver", [*words, "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


def run_statements(server: Server, path: Path, *, table: bool = False) -> None:
    for line in path.read_text().splitlines():
        server.say(line.removesuffix(";"), table=table)


def rows(server: Server, device: str, measurement: str, of: Any = int) -> dict[int, Any]:
    answer = server.say(f"select {measurement} from {device} where {EVER}")
    return {row[0] - T: as_written(row[1], of) for row in answer["rows"] if row[1] is not None}


def test_a_server_loads_the_exported_directory_and_has_its_rows(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    knows = KNOWS[".".join(server.version.split(".")[:2])]
    world = World(tmp_path / "centre")
    execute(world.engine, "set storage group to root.ex")
    execute(world.engine, "set ttl to root.ex 8640000000000")
    execute(
        world.engine,
        "create timeseries root.ex.d1.s(heat) with datatype=INT64, encoding=RLE, "
        "compression=SNAPPY tags(unit='c') attributes(who='it')",
    )
    if knows.aligned:
        execute(world.engine, "create aligned timeseries root.ex.d2(x DOUBLE, y TEXT)")
    aligned = [D2] if knows.aligned else []
    early = {D1: {"s": [(T + n, n) for n in range(100)]},
             D2: {"x": [(T + n, n / 4) for n in range(0, 50, 2)],
                  "y": [(T + n, f"w{n}") for n in range(1, 50, 2)]}}  # fmt: skip
    late = {D1: {"s": [(T + n, -n) for n in range(50, 150, 10)]}}
    world.load(NORTH, "sequence/root.ex/0/0/1-1-0-0.tsfile",
               build(early, aligned=aligned, version=3), registered=True)  # fmt: skip
    path = "unsequence/root.ex/0/0/2-2-0-0.tsfile"
    place = world.load(NORTH, path, build(late, version=3), registered=True)
    physical = str(place.relative_to(world.data))
    line = f"DELETION,root.ex.d1.*,{2**63 - 1},{T},{T + 9}\n".encode()
    world.engine.commit([
        records.DeletionsNoted(NORTH, path, physical, "mods", 0, line, 1 << 62)
    ])  # fmt: skip
    into = tmp_path / "out"
    told = exported(world, into, knows.version, capsys, "--file-bytes", "1KiB")
    assert len(told["files"]) > 1
    run_statements(server, into / "schema.sql")
    server.say(f"load '{into}'")
    wanted = {n: n for n in range(10, 100)} | {n: -n for n in range(50, 150, 10)}
    assert rows(server, D1, "s") == wanted
    assert rows(server, D2, "x", float) == {n: n / 4 for n in range(0, 50, 2)}
    assert rows(server, D2, "y", bytes) == {n: b"w%d" % n for n in range(1, 50, 2)}
    shown = str(server.say("show timeseries root.ex.**" if knows.aligned else
                           "show timeseries root.ex")["rows"])  # fmt: skip
    assert "RLE" in shown
    if server.version != "1.0.1":
        assert "heat" in shown


def test_a_server_loads_exported_tables(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not server.kind.tables:
        return
    world = World(tmp_path / "centre")
    for number, points in enumerate(
        [{"h": [(T + 1, 1.5), (T + 2, 2.5)]}, {"h": [(T + 2, 3.5)], "w": [(T + 3, "x")]}]
    ):
        path = f"sequence/extable/0/0/{number + 1}-{number + 1}-0-0.tsfile"
        world.load(NORTH, path, build({("t", "u1"): points}))
    execute(world.engine, "set storage group to root.`/extable`")
    execute(world.engine, "set ttl to root.`/extable` 8640000000000")
    into = tmp_path / "out"
    exported(world, into, 4, capsys)
    assert "extable" not in (into / "schema.sql").read_text()
    run_statements(server, into / "tables.sql", table=True)
    assert "8640000000000" in str(server.say("show databases", table=True)["rows"])
    server.say(f"load '{into}'", table=True)
    found = {
        int(row[-3]) - T: (as_written(row[-2], float), as_written(row[-1], bytes))
        for row in server.say("select time, h, w from t", table=True)["rows"]
    }
    assert found == {1: (1.5, None), 2: (3.5, None), 3: (None, b"x")}


def test_a_server_has_a_series_whose_name_needs_back_ticks_once(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file has them in the name, as the server itself writes it."""
    knows = KNOWS[".".join(server.version.split(".")[:2])]
    if not knows.aligned:
        pytest.skip("0.12 knows no back-ticks")
    world = World(tmp_path / "centre")
    points = {"`a b`": [(T + n, n) for n in range(10)], "s": [(T, 1)]}
    content = build({"root.ticks.`d.1`": points}, version=3)
    world.load(NORTH, "sequence/root.ticks/0/0/1-1-0-0.tsfile", content, registered=True)
    exported(world, tmp_path / "out", knows.version, capsys)
    run_statements(server, tmp_path / "out" / "schema.sql")
    server.say(f"load '{tmp_path / 'out'}'")
    assert rows(server, "root.ticks.`d.1`", "`a b`") == {n: n for n in range(10)}
    shown = server.say("show timeseries root.ticks.**")["rows"]
    assert len(shown) == 2, shown


def test_a_server_reads_a_column_that_files_had_with_two_types(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not server.kind.tables:
        return
    world, week = World(tmp_path / "centre"), 604_800_000
    narrow = build({("n", "u1"): {"h": [(T, 1)]}}, types={"h": "INT32"})
    world.load(NORTH, "sequence/exwide/0/0/1-1-0-0.tsfile", narrow)
    wide = build({("n", "u2", "x"): {"h": [(T + week, 2**40)]}})
    world.load(NORTH, "sequence/exwide/0/1/2-2-0-0.tsfile", wide)
    into = tmp_path / "out"
    exported(world, into, 4, capsys)
    run_statements(server, into / "tables.sql", table=True)
    server.say(f"load '{into}'", table=True)
    found = server.say("select time, tag1, tag2, h from n", table=True)["rows"]
    assert sorted((int(row[-4]) - T, *row[-3:-1], int(row[-1])) for row in found) == [
        (0, "u1", None, 1), (week, "u2", "x", 2**40)
    ]  # fmt: skip
