"""Random lives of a receiver's files, compacted at random: who reads what was made of them gets the
rows that whoever reads the files gets, at every commit, however it is asked.

Files come late, are deleted from, end, rot, come back and change hands; outputs go from the disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from common.errors import NotFoundError, TsferryError
from receiver.exporting.export_run import ExportRequest, export_to
from receiver.exporting.wanted_points import WantedPoints
from receiver.metadata.model import records
from receiver.metadata.model.paths import parse_pattern
from receiver.metadata.state.table_rows import FileState
from receiver.points import TsFileReader
from receiver.spark.finder import DataFile
from receiver.spark.local_catalogue import LocalCatalogue
from receiver.spark.source.inferring import columns_of, list_sources, plan_of, read_tail_of
from receiver.spark.source.read_plans.selection import TimeRange
from receiver.spark.source.read_plans.slicing import plan
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from receiver.spark.standing_in import with_stand_ins
from tests.property.receiver.spark.source.test_merged_reading import (
    DEVICES,
    LAST,
    SENDERS,
    Centre,
    small_tasks,
)
from tests.support import tiers
from tests.support.compacting import clusters, merged

__all__ = ["small_tasks"]
Rows = list[tuple[Any, ...]]


class Compacted(Centre):
    """A centre whose files are compacted now and then."""

    def __init__(self, root: Path, rng: Random) -> None:
        super().__init__(root, rng)
        self.made = 0

    def devices_of(self, sender: str) -> tuple[str, ...]:
        return DEVICES if self.rng.random() < 0.2 else super().devices_of(sender)

    def place_of(self, number: int) -> tuple[int, int]:
        """Mostly above all that came before."""
        if self.rng.random() < 0.3:
            return super().place_of(number)
        return 5 + number, 10 + number

    @property
    def catalogue(self) -> LocalCatalogue:
        return LocalCatalogue(self.root / "schema", "all", (str(self.root / "data"),))

    def sender_of(self, files: Iterable[DataFile]) -> set[str]:
        rows = self.rows()
        return {rows[each.name].sender for each in files}

    def compact(self) -> None:
        """Whole clusters of one sender's, cut anywhere; sometimes something comes meanwhile."""
        rng, at = self.rng, self.engine.newest_commit
        with self.catalogue as catalogue:
            every = clusters(catalogue.files(at))
        able = [
            each for each in every
            if len(self.sender_of(each)) == 1 and not any(file.cuts for file in each)
        ]  # fmt: skip
        if not able:
            return
        some = rng.sample(able, rng.randint(1, len(able)))
        owner = self.sender_of(some[0])
        inputs = {file.name for each in some if self.sender_of(each) == owner for file in each}
        self.made += 1
        cuts = sorted(rng.sample(range(1, LAST), rng.randint(0, 2)))
        data = self.root / "data"
        op = merged(self.engine, self.root / "schema", data, inputs, self.made, cuts)
        if rng.random() < 0.2:
            self.touch()
        self.commit(op)
        if op.outputs and rng.random() < 0.1:
            (data / rng.choice(op.outputs).physical).unlink()

    def touch(self) -> None:
        rows = sorted(self.rows().values(), key=lambda row: row.physical)
        row = self.rng.choice(rows) if rows else None
        kind = self.rng.randrange(9) if row else 9
        if row is None or kind > 5:
            with suppress(TsferryError):  # a device is another sender's
                self.load(len(self.files))
        elif kind == 0 and row.state is FileState.LIVE:
            self.commit(records.FileRetired(row.physical, row.rank.first + self.rng.randint(0, 6)))
        elif kind == 1 and row.visible:
            self.commit(records.FileQuarantined(row.physical, "rot"))
        elif kind == 2 and row.state is FileState.QUARANTINED:
            self.commit(records.FileRestored(row.physical))
        elif kind == 3:
            owner = self.rng.choice((*SENDERS, None))
            self.commit(records.OwnerSet(self.rng.choice(DEVICES), owner, "why"))
        elif kind == 4 and row.state is FileState.RETIRED:
            self.commit(records.FileReturned(row.physical, "", row.rank.first))
        elif kind == 5 and row.visible and self.rng.random() < 0.3:
            self.commit(records.FileDeleted(row.physical, "gone"))

    def commit(self, *ops: records.Op) -> None:
        with suppress(TsferryError):
            self.engine.commit(list(ops))

    def live(self, steps: int) -> None:
        while not self.files:
            self.touch()
        for _ in range(steps):
            step = self.rng.choice(
                (self.touch, self.touch, self.compact, self.compact, self.compact, self.remove)
            )
            step()
            self.commits.append(self.engine.newest_commit)

    def remove(self) -> None:
        if self.rng.random() < 0.4:
            with suppress(TsferryError):
                self.delete()


def rows_of(where: dict[str, str], size: int) -> tuple[Rows, list[str]]:
    """The rows, and the names of the files that were read."""
    options = parse_options(where)
    files = list_sources(options)
    if not files:
        return [], []
    query = plan_of(options, columns_of(options))
    parts = plan(
        files, query.selection.span, size, query.picker(), read_tail_of, merge=options.merge
    )
    found = [
        tuple(sorted((name, value) for name, value in row.items() if value is not None))
        for part in parts
        for batch in read_slices(part, query)
        for row in batch.to_pylist()
    ]
    return sorted(found), [each.name for each in files]


def exported(centre: Compacted, into: Path, at: int) -> Rows:
    wanted = WantedPoints(parse_pattern("root.**"))
    span = TimeRange()
    with centre.catalogue as catalogue:
        request = ExportRequest(
            engine=catalogue.uuid, commit=at, pattern="root.**", start=span.start, end=span.end,
            version=4, file_bytes=centre.rng.choice((1, 3000, 1 << 30)), file_points=1 << 40,
        )  # fmt: skip
        try:
            export_to(into, catalogue, wanted, request)
        except NotFoundError:
            return []
    found: Rows = []
    for path in into.rglob("*.tsfile"):
        with TsFileReader(path) as reader:
            for device in reader.tail.devices:
                for series in device.series():
                    for batch in reader.read_series(device, series.measurement):
                        for time, value in zip(*batch.to_pydict().values(), strict=True):
                            found.append((device.name, series.measurement, time, value))
    return sorted(found)


@pytest.mark.slow
@pytest.mark.usefixtures("small_tasks")
def test_rows_of_merged_files_are_those_of_their_inputs_however_they_are_asked_for(
    tmp_path: Path,
) -> None:
    merged_reads = covered = reads = 0
    for seed in range(tiers.examples(10)):
        rng = Random(seed)
        centre = Compacted(tmp_path / str(seed), rng)
        centre.live(rng.randint(4, 16))
        where = {"catalog": str(centre.root / "schema")}
        newest = centre.engine.newest_commit
        low, high = sorted((rng.randrange(LAST), rng.randrange(LAST)))
        asked: list[dict[str, str]] = [
            {},
            {"form": "long"},
            {"asOf": str(rng.choice(centre.commits))},
            {"form": "long", "startTime": str(low), "endTime": str(high)},
            {"retired": "false"},
            {"devices": rng.choice(DEVICES), "form": "long"},
        ]
        for given in asked:
            size = rng.choice((1, 4000, 1 << 30))
            answer, read = rows_of({**where, **given}, size)
            expected, _ = rows_of({**where, **given, "compacted": "false"}, 1 << 30)
            assert answer == expected, (seed, given)
            assert len(set(answer)) == len(answer), (seed, given)
            reads += 1
            merged_reads += any("/merged-" in each for each in read)
            covered += given == {} and _is_covered(centre)
        at = rng.choice((newest, rng.choice(centre.commits)))
        points, _ = rows_of({**where, "form": "long", "compacted": "false", "asOf": str(at)}, 1)
        assert exported(centre, centre.root / "out", at) == sorted(
            (row["device"], row["measurement"], row["time"], row["value_long"])
            for row in map(dict, points)
        ), seed
        centre.engine.close()
    assert merged_reads * 4 > reads, f"{merged_reads} of {reads} had merged files"
    assert covered, "no merged file had another one above it"


def _is_covered(centre: Compacted) -> bool:
    with centre.catalogue as catalogue:
        newest = catalogue.newest
        files = with_stand_ins(catalogue.files(newest), catalogue.stand_ins(newest))
    several = [each for each in clusters(files) if len(each) > 1]
    return any("/merged-" in file.name for each in several for file in each)


def test_lives_are_of_all_kinds(tmp_path: Path) -> None:
    seen: set[str] = set()
    for seed in itertools.count():
        centre = Compacted(tmp_path / str(seed), Random(seed))
        centre.live(14)
        with centre.engine.reading() as state:
            seen |= {str(row.state) for row in state.files.values()}
            seen |= {"holds"} if state.compacted_table else set()
            seen |= {row.reason.split()[-1] for row in state.compacted_table.dissolved()}
            seen |= {"moved"} if state.owner_table.moves else set()
        centre.engine.close()
        if seen >= {"holds", "live", "retired", "quarantined", "moved", "sight", "inputs"}:
            return
        assert seed < 20, seen
