"""An exported directory holds what a dictionary says that readers see, each point once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from common.errors import NotFoundError
from common.tsfile import Status, read_tail
from receiver.exporting import merged_inputs, time_slices
from receiver.exporting.export_run import ExportManifest, ExportRequest, export_to
from receiver.exporting.wanted_points import WantedPoints
from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_pattern
from receiver.points import TsFileReader
from receiver.spark.local_catalogue import LocalCatalogue
from receiver.spark.source.read_plans.selection import TimeRange
from tests.property.receiver.spark.source.test_merged_reading import LAST, Centre
from tests.support import tiers

Rows = dict[tuple[str, str, int], int]


def exported(
    centre: Centre, into: Path, at: int, pattern: str, span: TimeRange, **limits: int
) -> ExportManifest:
    wanted = WantedPoints(parse_pattern(pattern), span)
    with LocalCatalogue(centre.root / "schema", "all", (str(centre.root / "data"),)) as catalogue:
        request = ExportRequest(
            engine=catalogue.uuid, commit=at, pattern=pattern, start=span.start, end=span.end,
            version=limits.get("version", 4), file_bytes=limits.get("file_bytes", 1 << 30),
            file_points=limits.get("file_points", 1 << 40),
        )  # fmt: skip
        return export_to(into, catalogue, wanted, request)


def rows_in(directory: Path) -> Rows:
    """Of all files; a point that is there twice is an error."""
    found: Rows = {}
    for path in sorted(directory.rglob("*.tsfile")):
        assert read_tail(path).status is Status.COMPLETE
        with TsFileReader(path) as reader:
            for device in reader.tail.devices:
                for series in device.series():
                    for batch in reader.read_series(device, series.measurement):
                        for time, value in zip(*batch.to_pydict().values(), strict=True):
                            key = (device.name, series.measurement, time)
                            assert key not in found
                            found[key] = value
    return found


@pytest.mark.slow
def test_what_is_exported_is_what_readers_see_by_path_time_and_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(tiers.examples(40)):
        rng = Random(seed)
        monkeypatch.setattr(merged_inputs, "_KEPT_OPEN", rng.choice((1, 2, 200)))
        monkeypatch.setattr(time_slices, "_MOST_FILES", rng.choice((1, 2, 200)))
        centre = Centre(tmp_path / str(seed), rng)
        for number in range(rng.randint(2, 7)):
            centre.load(number)
            for _ in range(rng.randint(0, 2)):
                centre.delete()
            centre.commits.append(centre.engine.newest_commit)
        at = rng.choice(centre.commits)
        low, high = sorted((rng.randrange(LAST), rng.randrange(LAST)))
        span = rng.choice([TimeRange(), TimeRange(low, high)])
        pattern, takes = rng.choice([
            ("root.**", lambda device, name: True),
            ("root.sg.d1.*", lambda device, name: device == "root.sg.d1"),
            ("root.sg.*.x", lambda device, name: name == "x"),
        ])  # fmt: skip
        wanted = {
            key: value
            for key, value in centre.answer(at).items()
            if span.start <= key[2] <= span.end and takes(key[0], key[1])
        }
        into = tmp_path / str(seed) / "out"
        limits = {
            "version": rng.choice((3, 4)),
            "file_bytes": rng.choice((1, 3000, 1 << 30)),
            "file_points": rng.choice((1, 1 << 40)),
        }
        try:
            manifest = exported(centre, into, at, pattern, span, **limits)
        except NotFoundError:
            assert not wanted, seed
        else:
            assert rows_in(into) == wanted, seed
            assert manifest.points == len(wanted), seed
            said = {each.path for each in manifest.files}
            assert said == {str(each.relative_to(into)) for each in into.rglob("*.tsfile")}
            assert all((into / f"{each}.resource").exists() for each in said)
        centre.engine.close()


def test_an_export_of_the_past_has_what_was_deleted_since(tmp_path: Path) -> None:
    centre = Centre(tmp_path / "centre", Random(1))
    for number in range(3):
        centre.load(number)
    at = centre.engine.newest_commit
    for file in centre.files:
        centre.engine.commit([records.FileDeleted(file.physical, "gone")])
    manifest = exported(centre, tmp_path / "out", at, "root.**", TimeRange())
    assert rows_in(tmp_path / "out") == centre.answer(at)
    assert manifest.inputs == 3
    with pytest.raises(NotFoundError):
        exported(centre, tmp_path / "now", centre.engine.newest_commit, "root.**", TimeRange())
    centre.engine.close()
