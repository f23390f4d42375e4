"""A part that kills its process becomes a row, and the parts after it are worked off."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pytest

pytest.importorskip("numba")

from receiver.spark.report.results import Severity
from receiver.spark.verify.examining.isolation import Isolated, Worker
from receiver.spark.verify.examining.part_rows import Settings
from receiver.spark.verify.examining.parts import Expected, FilePart, PartResult, pack
from tests.support.tsfile_bytes import build

FILE = build({"root.sg.d": {"s": [(n, n) for n in range(9)]}})


@pytest.mark.slow
def test_a_part_that_kills_its_process_becomes_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a.tsfile"
    place.write_bytes(FILE)
    monkeypatch.setenv("TSFERRY_CRASH_AT", "verify.decoding:2")
    isolated = Isolated(Settings("ms", keep_chunks=True, limit=60.0))
    results = []
    try:
        for number in range(3):
            row = isolated.do(FilePart(number, 0, 0, 0, Expected(str(place))))
            results.append(
                msgspec.msgpack.decode(row.column("result")[0].as_buffer(), type=PartResult)
            )
    finally:
        isolated.close()
    assert [each.points for each in results] == [9, 0, 9]
    (finding,) = results[1].findings
    assert (finding.severity, finding.check) == (Severity.UNPROVED, "worker")
    assert "signal 9" in finding.detail
    assert results[0].findings == results[2].findings == []


def test_what_a_worker_has_imported_is_not_looked_through_behind_each_task(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    place = tmp_path / "a.tsfile"
    place.write_bytes(FILE)
    group = pack([FilePart(0, 0, 0, 0, Expected(str(place)))])
    worker = Worker(SimpleNamespace(value=[group]), Settings("ms", keep_chunks=False, limit=60.0))
    task = [pa.RecordBatch.from_pydict({"id": [0]})]
    by_others = gc.get_freeze_count()
    gc.unfreeze()
    try:
        assert len(list(worker(iter(task)))) == 1
        kept = gc.get_freeze_count()
        assert kept > 10_000
        list(worker(iter(task)))
        assert gc.get_freeze_count() <= kept  # what a later task leaves can still be collected
    finally:
        if not by_others:
            gc.unfreeze()
