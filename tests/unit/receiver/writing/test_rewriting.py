"""A real file that is written again has the rows that its own writer reads from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.tsfile import Status, Tail, read_tail
from receiver.points import ChunkSummary, TsFileReader
from receiver.points.deleted.deletions import Deletions
from receiver.writing.page_cuts import Cuts
from receiver.writing.value_encoding import written_as
from tests.support.expected_rows import comparable, real_files
from tests.support.rewriting import rewrite

PATHS = sorted({path for real in real_files() if not real.encrypted for path in real.paths})
SMALL = Cuts(
    page_points=7, page_bytes=40, page_texts=1, chunk_points=20, chunk_bytes=300, group_bytes=1200
)


def again(path: Path, into: Path, version: int | None, cuts: Cuts | None) -> Tail:
    tail = read_tail(path, chunk_headers=True)
    written = bytearray()
    with TsFileReader(path, tail=tail, text="binary") as file:
        size = rewrite(file, written.extend, version=version, cuts=cuts)
    assert size == len(written)
    into.write_bytes(written)
    return read_tail(into, chunk_headers=True)


def rows(
    path: Path, *, check: bool = False, deletions: Deletions | None = None
) -> dict[tuple[str, str], list[tuple[int, Any]]]:
    """The points of series that have any; if asked, every chunk is what the file says of it."""
    found: dict[tuple[str, str], list[tuple[int, Any]]] = {}
    with TsFileReader(path, text="binary", deletions=deletions) as file:
        for device in file.tail.devices:
            for series in device.series():
                for batch in file.read_series(device, series.measurement):
                    times, values = (column.to_pylist() for column in batch.columns)
                    points = found.setdefault((device.name, series.measurement), [])
                    points += zip(times, comparable(values), strict=True)
            for summary in file.summaries(device) if check else ():
                assert isinstance(summary, ChunkSummary), summary
                assert summary.exact or not summary.statistics.count
    return found


@pytest.mark.few(25, always="iotdb-1.0.1/aligned_types")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_it_has_the_same_rows_and_passes_every_check(path: Path, tmp_path: Path):
    tail = again(path, tmp_path / "a.tsfile", None, None)
    assert tail.status is Status.COMPLETE, tail.reason
    assert rows(tmp_path / "a.tsfile", check=True) == rows(path)
    for device in tail.devices:
        for series in device.series():
            for chunk in series.chunks:
                assert written_as(chunk.encoding or 0, series.data_type) == chunk.encoding


DELETED = sorted({path for real in real_files() if real.deletions for path in real.paths})


@pytest.mark.parametrize("path", DELETED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_was_deleted_of_it_is_not_written_again(path: Path, tmp_path: Path):
    written = bytearray()
    deletions = Deletions.beside(path)
    with TsFileReader(path, deletions=deletions, text="binary") as file:
        rewrite(file, written.extend)
    (tmp_path / "a.tsfile").write_bytes(written)
    kept = rows(path, deletions=deletions)
    assert rows(tmp_path / "a.tsfile", check=True) == kept
    assert not path.name.startswith("deletions.") or kept != rows(path)


VARIED = {"aligned_types", "chunks", "compacted", "names", "nulls", "short_pairs", "specials"}
OF_VERSION_3 = [path for path in PATHS if path.read_bytes()[6] == 3 and path.stem in VARIED]


@pytest.mark.few(4)
@pytest.mark.parametrize("path", OF_VERSION_3, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_one_of_version_3_has_the_same_rows_in_version_4_cut_small_and_back(
    path: Path, tmp_path: Path
):
    newer, older = tmp_path / "4.tsfile", tmp_path / "3.tsfile"
    assert again(path, newer, 4, SMALL).version == 4
    assert again(newer, older, 3, SMALL).version == 3
    assert rows(newer, check=True) == rows(older, check=True) == rows(path)
