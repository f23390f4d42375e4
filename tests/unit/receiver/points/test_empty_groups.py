"""Where there is no point there is nothing to be damaged, however writers say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.points import ChunkSummary, DamagedData, TsFileReader
from tests.support.real_tsfiles import real_file
from tests.support.tsfile_bytes import build

D1, D2 = "root.sg.d1", "root.sg.d2"
EMPTY = {D1: {"s1": [(1, 2.5)]}, D2: {"s1": [], "s2": []}}
OPTIONS = {"types": {"s1": "DOUBLE", "s2": "TEXT"}, "aligned": [D2], "timeless": [D2]}


def empty_device(path: Path, name: str) -> None:
    """Everything that reads a device says that this one has no points."""
    with TsFileReader(path) as file:
        device = file.device(name)
        assert device.aligned
        assert device.time_column() is None
        found = list(file.summaries(device))
        assert found
        for each in found:
            assert isinstance(each, ChunkSummary)
            assert (each.statistics.count, each.pages, each.rows) == (0, 0, 0)
        assert list(file.read_device(device)) == []
        for series in device.series():
            assert list(file.read_series(device, series.measurement)) == []


@pytest.mark.parametrize("version", [3, 4])
def test_an_aligned_device_without_a_point_may_lack_its_time_column(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "a.tsfile"
    path.write_bytes(build(EMPTY, version=version, **OPTIONS))
    empty_device(path, D2)


def test_so_it_is_in_a_file_that_java_wrote(tmp_path: Path) -> None:
    path = tmp_path / "a.tsfile"
    path.write_bytes(real_file("java_v3_aligned_2devices.tsfile"))
    empty_device(path, "d2")


def test_values_without_a_time_column_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.tsfile"
    path.write_bytes(build({D2: {"s1": [(1, 2.5)]}}, aligned=[D2], timeless=[D2]))
    with TsFileReader(path) as file:
        (found,) = file.summaries(file.device(D2))
    assert isinstance(found, DamagedData)
    assert "without a time column" in found.reason


def test_pages_of_a_chunk_that_counts_as_empty_are_damage(tmp_path: Path) -> None:
    """The index says that there is nothing, and something stands there."""
    content = bytearray(build(EMPTY, **OPTIONS))
    at = content.index(b"\x45\x04s1\x00")  # a chunk of values, named s1, of no bytes
    assert content[at + 8 : at + 12] == b"\x45\x04s2"
    content[at + 4] = 3  # now the next chunk's first bytes are its page
    path = tmp_path / "a.tsfile"
    path.write_bytes(content)
    with TsFileReader(path) as file:
        found = list(file.summaries(file.device(D2)))
    assert any(isinstance(each, DamagedData) for each in found)


def test_a_device_with_the_wrong_header_is_looked_into_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once a chunk, which takes hours where there are very many series."""
    content = bytearray(build({D1: {f"s{n}": [(1, n)] for n in range(50)}}))
    content[content.index(b"root")] ^= 1
    path = tmp_path / "a.tsfile"
    path.write_bytes(content)
    asked = []
    judge = TsFileReader._why_not
    monkeypatch.setattr(TsFileReader, "_why_not", lambda *each: (asked.append(1), judge(*each))[1])
    with TsFileReader(path) as file:
        found = list(file.summaries(file.device(D1)))
    assert len(found) == 50
    assert all(isinstance(each, DamagedData) for each in found)
    assert len(asked) == 1
