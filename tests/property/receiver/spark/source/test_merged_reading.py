"""What a query over a catalogue gives is what a dictionary says that is asked time by time.

Files overlap in any way, are retired, have deletion files that hide points of others, and tasks are
cut as small as can be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from common.names import FilePath
from common.tsfile import read_tail
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.ranks import Rank, highest
from receiver.spark.catalogue_opening import open_catalogue
from receiver.spark.source import slice_reader
from receiver.spark.source.inferring import (
    columns_of,
    list_sources,
    plan_of,
    read_tail_of,
)
from receiver.spark.source.read_plans import overlapping, slicing
from receiver.spark.source.read_plans.result_columns import ResultColumn
from receiver.spark.source.read_plans.slicing import plan
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from tests.support import tiers
from tests.support.tsfile_bytes import build

SENDERS = ("a" * 32, "b" * 32)
DEVICES = ("root.sg.d1", "root.sg.d2", "root.sg.d3", "root.sg.d4")
LAST = 30
WIDE = [ResultColumn(name, "bigint") for name in ("time", *"xyz")]
WIDE.append(ResultColumn("device", "string"))


@dataclass
class Loaded:
    """A file of the model; `deletions` are (commit, floor, series, low, high, applied,
    whether it was there before the file's own points)."""

    sender: str
    physical: str
    points: dict[str, dict[str, list[tuple[int, int]]]]
    deletions: list[tuple[int, int, str, int, int, bool, bool]] = field(default_factory=list)


class Centre:
    """An engine with files, and what is known of them."""

    def __init__(self, root: Path, rng: Random) -> None:
        self.rng, self.root = rng, root
        (root / "schema").mkdir(parents=True)
        self.engine = Engine.open(root / "schema")
        for each in SENDERS:
            self.engine.commit([records.SenderSeen(uuid=each, label="x", directory=f"x_{each}")])
        self.files: list[Loaded] = []
        self.contents: dict[str, list[bytes]] = {}
        self.commits: list[int] = []

    def devices_of(self, sender: str) -> tuple[str, ...]:
        return DEVICES[:3] if sender == SENDERS[0] else DEVICES[3:]

    def place_of(self, number: int) -> tuple[int, int]:
        """(version, the first look that had it)."""
        return self.rng.randint(1, 4), self.rng.randint(1, 9)

    def load(self, number: int) -> None:
        rng = self.rng
        sender = rng.choice(SENDERS)
        devices = self.devices_of(sender)
        points = {
            device: {
                name: [
                    (time, number * 1000 + time)
                    for time in sorted(rng.sample(range(LAST), rng.randint(1, 8)))
                ]
                for name in rng.sample("xyz", rng.randint(1, 3))
            }
            for device in rng.sample(devices, rng.randint(1, len(devices)))
        }
        content = build(points, aligned=rng.sample(list(points), 1), chunks=rng.randint(1, 2))
        kind = rng.choice(["sequence", "unsequence"])
        version, first = self.place_of(number)
        path = f"{kind}/root.sg/0/0/{number + 1}-{version}-{rng.randint(0, 1)}-0.tsfile"
        physical = FilePath.parse(path).physical(f"{number:016x}").text
        place = self.root / "data" / physical
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        tail = read_tail(content)
        loaded = records.FileLoaded(
            sender=sender, path=path, physical=physical, size=len(content),
            md5=hashlib.md5(content).hexdigest(), tail="0" * 32, version=4,
            devices=[records.DeviceRange(each.name, each.start, each.end)
                     for each in tail.devices],
            first=tail.first_time, last=tail.last_time, series=tail.series_count,
            points=tail.point_count, task="0" * 32, resource=None, manifest=None,
            data_dir=str(self.root / "data"), first_look=first,
            closed_look=first + rng.randint(0, 2),
        )  # fmt: skip
        self.engine.commit([loaded])
        self.files.append(Loaded(sender, physical, points))
        if rng.random() < 0.4:
            look = loaded.closed_look + rng.randint(0, 4)
            self.engine.commit([records.FileRetired(physical, last_look=look)])

    def delete(self) -> None:
        rng = self.rng
        file = rng.choice(self.files[:2] if rng.random() < 0.5 else self.files)
        device = rng.choice(DEVICES)
        name, low, high = rng.choice(["*", "x", "y"]), rng.randrange(LAST), rng.randrange(LAST)
        is_old = rng.random() < 0.3
        offset = 0 if is_old else 2**63 - 1
        content = f"DELETION,{device}.{name},{offset},{low},{high}\n".encode()
        path, base = next(
            (row.path, sum(len(each) for each in self.contents.get(row.physical, [])))
            for row in self.rows().values() if row.physical == file.physical
        )  # fmt: skip
        self.contents.setdefault(file.physical, []).append(content)
        floor, applied = rng.randint(0, 12), rng.random() < 0.8
        self.engine.commit([
            records.DeletionsNoted(
                sender=file.sender, path=path, physical=file.physical, form="mods", base=base,
                content=content, floor=floor, applied=applied,
            )
        ])  # fmt: skip
        series = f"{device}.{name}"
        commit = self.engine.newest_commit
        file.deletions.append((commit, floor, series, low, high, applied, is_old))

    def rows(self) -> dict[str, Any]:
        with self.engine.reading() as state:
            return dict(state.files)

    def answer(self, at: int, retired: bool = True) -> dict[tuple[str, str, int], int]:
        """What readers must get as of a commit."""
        rows = self.rows()
        found: dict[tuple[str, str, int], list[tuple[Rank, int]]] = {}
        for file in self.files:
            row = rows[file.physical]
            if row.created > at or (row.retired and not retired):
                continue
            for device, series in file.points.items():
                for name, points in series.items():
                    for time, value in points:
                        if not self._is_deleted(file, row.rank, f"{device}.{name}", time, at):
                            key = (device, name, time)
                            found.setdefault(key, []).append((row.rank, value))
        answer = {}
        for key, values in found.items():
            top = highest([rank for rank, _ in values])
            answer[key] = next(value for rank, value in values if rank is top)
        return answer

    def _is_deleted(self, file: Loaded, rank: Rank, series: str, time: int, at: int) -> bool:
        for other in self.files:
            for commit, floor, pattern, low, high, applied, is_old in other.deletions:
                reaches = other.sender == file.sender and floor >= rank.closed
                if other is file:
                    reaches = not is_old
                matches = pattern == series or (
                    pattern.endswith("*") and pattern[:-1] == series.rpartition(".")[0] + "."
                )
                if applied and commit <= at and reaches and matches and low <= time <= high:
                    return True
        return False


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slicing, "_OPENING", 0)
    monkeypatch.setattr(slicing, "_LEAST_BYTES", 1)
    monkeypatch.setattr(overlapping, "_MOST_FILES", 3)


def _centre(root: Path, seed: int) -> Centre:
    rng = Random(seed)
    centre = Centre(root / str(seed), rng)
    for number in range(rng.randint(2, 7)):
        centre.load(number)
        for _ in range(rng.randint(0, 2)):
            centre.delete()
        centre.commits.append(centre.engine.newest_commit)
    return centre


def _rows(
    where: dict[str, str], partition_bytes: int
) -> Iterator[tuple[tuple[str, str, int], int]]:
    options = parse_options({"form": "long", **where})
    query = plan_of(options, columns_of(options) if options.form == "long" else WIDE)
    parts = plan(
        list_sources(options), query.selection.span, partition_bytes, query.picker(),
        read_tail_of, merge=options.merge,
    )  # fmt: skip
    for part in parts:
        for batch in read_slices(part, query):
            for row in batch.to_pylist():
                yield from _points(row)


def _points(row: dict[str, Any]) -> Iterator[tuple[tuple[str, str, int], int]]:
    if "measurement" in row:
        yield (row["device"], row["measurement"], row["time"]), row["value_long"]
        return
    for name in row.keys() - {"device", "time"}:
        if row[name] is not None:
            yield (row["device"], name, row["time"]), row[name]


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("form", ["long", "wide"])
@pytest.mark.parametrize("small", [1 << 20, 0], ids=["together", "each by itself"])
def test_a_catalogue_gives_each_time_once_as_looks_and_deletions_have_it(
    tmp_path, monkeypatch, form, small
):
    """Each life is read in both forms and both ways, in the long tier in all four together."""
    monkeypatch.setattr(slice_reader, "_SMALL_FILE", small)
    first = (form == "wide") ^ (small == 0)
    seeds = range(tiers.examples(60))
    for seed in seeds if tiers.is_long() else seeds[first::2]:
        centre = _centre(tmp_path, seed)
        where = {"catalog": str(tmp_path / str(seed) / "schema"), "form": form}
        newest = centre.engine.newest_commit
        rng = Random(-seed)
        low, high = sorted((rng.randrange(LAST), rng.randrange(LAST)))
        size = rng.choice((1, 4000, 1 << 30))
        at = rng.choice((newest, newest, rng.choice(centre.commits)))
        where["asOf"] = str(at)
        rows = list(_rows(where, size))
        assert dict(rows) == centre.answer(at), seed
        assert len(rows) == len(dict(rows)), seed
        rows = list(_rows({**where, "startTime": str(low), "endTime": str(high)}, size))
        wanted = {key: value for key, value in centre.answer(at).items() if low <= key[2] <= high}
        assert dict(rows) == wanted, seed
        assert len(rows) == len(wanted), seed
        del where["asOf"]
        rows = list(_rows({**where, "retired": "false"}, 4000))
        assert dict(rows) == centre.answer(newest, retired=False), seed
        centre.engine.close()


@pytest.mark.usefixtures("small_tasks")
def test_a_directory_is_merged_by_names_alone(tmp_path):
    for seed in range(tiers.examples(12)):
        centre = _centre(tmp_path, seed)
        centre.engine.close()
        folder = tmp_path / str(seed) / "data"
        with open_catalogue(str(tmp_path / str(seed) / "schema")) as catalogue:
            ranks = {
                each.name: replace_looks(each.rank)
                for each in catalogue.files(catalogue.newest)
                if each.rank is not None
            }
        best: dict[tuple[str, str, int], list[tuple[Rank, int]]] = {}
        for file in centre.files:
            for device, series in file.points.items():
                for name, points in series.items():
                    for time, value in points:
                        key = (device, name, time)
                        best.setdefault(key, []).append((ranks[file.physical], value))
        wanted = {
            key: next(v for rank, v in values if rank is highest([each for each, _ in values]))
            for key, values in best.items()
        }
        rows = list(_rows({"path": str(folder)}, 4000))
        assert dict(rows) == wanted, seed
        assert len(rows) == len(wanted), seed
        stored = list(_rows({"path": str(folder), "merge": "false"}, 4000))
        assert len(stored) == sum(map(len, best.values())), seed


def replace_looks(rank: Rank) -> Rank:
    return rank._replace(first=1, closed=1, last=1 << 62, loaded=0)


def test_a_point_counts_where_only_a_null_stands_above(tmp_path):
    for number, points in enumerate(
        [{"x": [(1, 1), (2, 1)], "y": [(1, 1), (2, 1)]}, {"x": [(1, 2)], "y": [(2, 2)]}]
    ):
        place = tmp_path / f"sequence/root.sg/0/0/{number}-{number}-0-0.tsfile"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(build({"root.sg.d1": points}, aligned=["root.sg.d1"]))
    options = parse_options({"path": str(tmp_path)})
    query = plan_of(options, columns_of(options))
    (part,) = plan(
        list_sources(options), query.selection.span, 1 << 20, query.picker(), read_tail_of,
        merge=True,
    )  # fmt: skip
    table = pa.Table.from_batches(read_slices(part, query))
    assert [(row["time"], row["x"], row["y"]) for row in table.to_pylist()] == [
        (1, 2, 1),
        (2, 1, 2),
    ]


def test_files_that_have_one_time_in_common_are_merged(tmp_path):
    for number, times in enumerate([(1, 2, 3), (3, 4)]):
        place = tmp_path / f"sequence/root.sg/0/0/{number}-{number}-0-0.tsfile"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(build({"root.sg.d1": {"x": [(time, number) for time in times]}}))
    rows = list(_rows({"path": str(tmp_path)}, 1 << 20))
    assert sorted((key[2], value) for key, value in rows) == [(1, 0), (2, 0), (3, 1), (4, 1)]


def test_files_that_overlap_nothing_are_planned_as_without_merging(tmp_path):
    for number in range(6):
        place = tmp_path / f"sequence/root.sg/0/0/{number}-{number}-0-0.tsfile"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(build({"root.sg.d1": {"x": [(number * 10 + n, 1) for n in range(9)]}}))
    options = parse_options({"path": str(tmp_path), "form": "long"})
    query = plan_of(options, columns_of(options))
    given = list_sources(options), query.selection.span, 1 << 20, query.picker(), read_tail_of
    assert plan(*given, merge=True) == plan(*given)
