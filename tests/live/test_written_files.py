"""Files that we write, loaded into real servers: they answer with the points that are in them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.tsfile import Compression, DataType, Encoding, read_tail
from common.tsfile.device_names import device_segments
from receiver.points import Column
from receiver.writing.chunk_pages import SeriesForm
from receiver.writing.resource_bytes import resource_of
from receiver.writing.tsfile_writer import TsFileWriter
from tests.live.server import Server, versions
from tests.live.written_files import BEGIN, KNOWS, Points, tables, tree

pytestmark = pytest.mark.timeout(900)

NAME = "1700000000000-1-0-0.tsfile"
EVER = "time >= 1690000000000 and time < 1710000000000"
"""A server of 1.0 that stands alone wants to know both ends."""


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


def test_a_server_answers_with_what_we_wrote(server: Server, tmp_path: Path) -> None:
    knows = KNOWS[".".join(server.version.split(".")[:2])]
    path = tmp_path / NAME
    written = tree(knows, path)
    server.say(f"{server.kind.groups} root.w")
    server.say(f"load '{path}'")
    for (device, measurement), points in written.items():
        assert asked(server, device, measurement) == normal(points), (device, measurement)


def test_a_server_of_version_4_reads_version_3(server: Server, tmp_path: Path) -> None:
    if KNOWS[".".join(server.version.split(".")[:2])].version == 3:
        return
    path = tmp_path / "1700000000000-2-0-0.tsfile"
    written = tree(KNOWS["1.0"], path, "root.old")
    server.say("create database root.old")
    server.say(f"load '{path}'")
    for (device, measurement), points in written.items():
        if ".many." not in device and not device.endswith(".wide"):
            assert asked(server, device, measurement) == normal(points), (device, measurement)


def test_a_server_answers_with_the_rows_of_a_table(server: Server, tmp_path: Path) -> None:
    if not server.kind.tables:
        return
    path = tmp_path / "1700000000000-3-0-0.tsfile"
    written = tables(path)
    server.say("create database wt", table=True)
    server.say("use wt", table=True)
    server.say(f"load '{path}'", table=True)
    answer = server.say("select time, site, unit, running, heat, word from written", table=True)
    found = {}
    for row in answer["rows"]:
        at, site, unit, on, heat, word = row[-6:]
        found[site, unit, int(at)] = (on, heat, word)
    assert found.keys() == set(written)
    for key, cells in written.items():
        on, heat, word = found[key]
        assert as_written(on, bool) == cells[0]
        assert bits(as_written(heat, float)) == bits(cells[1])
        assert as_written(word, bytes) == cells[2]


def asked(server: Server, device: str, measurement: str) -> Points:
    answer = server.say(f"select {measurement} from {device} where {EVER}")
    kind = measurement.split("_")[0]
    of: Callable[[str], Any] = {"boolean": bool, "float": single, "double": float}.get(kind, int)
    if kind in ("text", "string"):
        of = bytes
    if kind == "blob":  # as one number in hexadecimal
        of = number
    return {row[0]: bits(as_written(row[1], of)) for row in answer["rows"] if row[1] is not None}


def number(text: str) -> bytes:
    whole = int(text, 16)
    return whole.to_bytes((whole.bit_length() + 7) // 8, "big")


def single(text: str) -> float:
    """What a FLOAT is: some clients give the shortest text that means it, some all its digits."""
    return float(np.float32(text))


def as_written(text: str | None, of: Callable[[str], Any]) -> Any:
    """A value of the client's text of it."""
    if text is None:
        return None
    if of is bool:
        return text.lower() == "true"
    if of is bytes:
        return text.encode()
    if of is int and "-" in text[1:]:
        return int(text.replace("-", ""))  # a date
    return of(text)


def bits(value: Any) -> Any:
    """Floats by their bits: a NaN is one, 0.0 and -0.0 are two."""
    return struct.pack(">d", value) if isinstance(value, float) else value


def normal(points: Points) -> Points:
    return {at: bits(value) for at, value in points.items()}


def test_a_server_that_starts_finds_our_file_with_its_resource(
    server: Server, tmp_path: Path
) -> None:
    own = Server(server.unpacked, tmp_path / "run")
    own.run.mkdir()
    knows = KNOWS[".".join(own.version.split(".")[:2])]
    with own.running(own.kind.quiet):
        own.say(f"{own.kind.groups} root.w")
        own.say("create timeseries root.w.d.s with datatype=INT64, encoding=TS_2DIFF")
        own.say(f"insert into root.w.d(time, s) values({BEGIN}, -1)")
        own.say("flush")
        own.quiet()
    (beside,) = (own.files / "sequence").rglob("*.tsfile")
    times = BEGIN + 1 + np.arange(500)
    place = beside.with_name(f"{int(beside.name.split('-')[0]) + 1}-2-0-0.tsfile")
    with place.open("wb") as file:
        writer = TsFileWriter(file.write, version=knows.version)
        form = SeriesForm("s", DataType.INT64, Encoding.TS_2DIFF, Compression.SNAPPY)
        with writer.plain_device(device_segments("root.w.d", knows.version)) as device:
            device.write(form, times, Column(DataType.INT64, times * 7))
        writer.finish()
    resource = place.with_name(place.name + ".resource")
    resource.write_bytes(resource_of(read_tail(place)))
    before = resource.read_bytes()
    with own.running(own.kind.quiet):
        wanted = {BEGIN: -1, **dict(zip(times.tolist(), (times * 7).tolist(), strict=True))}
        assert asked(own, "root.w.d", "s") == wanted
    assert resource.read_bytes() == before, "the server has made another"
