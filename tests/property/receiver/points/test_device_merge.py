"""Merged rows are those of a dictionary that is asked time by time, whatever the files are."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from receiver.metadata.model.ranks import NOW, Ladder, Rank, highest
from receiver.points import TsFileReader
from receiver.points.deleted.deletion_entries import AnyDevice, Deletion, PathPattern, TableSeries
from receiver.points.deleted.deletions import Deletions
from receiver.points.device_merge import DeviceMerge, MergeSource
from tests.support import tiers
from tests.support.tsfile_bytes import build

TREE, TABLE = "root.sg.d1", ("wind", "t1")
MEASUREMENTS = ("a", "b", "c")
LAST = 24


@dataclass(frozen=True)
class Made:
    """A file, what of it was deleted, where it stands, and its part in a comparison."""

    points: Mapping[str, Sequence[tuple[int, Any]]]
    types: Mapping[str, str]
    aligned: bool
    chunks: int
    deletions: Sequence[tuple[str, int, int]]
    rank: Rank
    counts: bool
    before: bool

    def given(self, is_table: bool) -> tuple[dict[tuple[str, int], Any], set[int]]:
        """Points by measurement and time, and the times of its rows."""
        found = {
            (name, time): (self.types[name], value)
            for name, points in self.points.items()
            for time, value in points
            if not any(of in ("", name) and low <= time <= high for of, low, high in self.deletions)
        }
        rows = {time for points in self.points.values() for time, _ in points}
        whole = [each for each in self.deletions if not each[0]]
        rows -= {time for time in rows if any(low <= time <= high for _, low, high in whole)}
        return found, rows if is_table else {time for _, time in found}


def _rank(rng: Random, number: int) -> Rank:
    kind: Any = tuple(rng.randint(0, 2) for _ in range(5))
    first = rng.randint(1, 6)
    closed = rng.randint(first, 7)
    last = rng.choice([NOW, closed, rng.randint(closed, 8)])
    name = None if rng.random() < 0.1 else kind
    return Rank(name, first, closed, last, rng.randint(1, 3), f"f{number}")


def _made(rng: Random, number: int, compares: bool) -> Made:
    points, types = {}, {}
    for name in rng.sample(MEASUREMENTS, rng.randint(1, 3)):
        types[name] = rng.choice(["INT64", "INT64", "TEXT", "DOUBLE"])
        value: Any = {"INT64": int, "TEXT": str, "DOUBLE": float}[types[name]]
        times = sorted(rng.sample(range(LAST), rng.randint(1, LAST)))
        points[name] = [(time, value(rng.randint(0, 2))) for time in times]
    deletions = [
        (rng.choice(["", *MEASUREMENTS]), rng.randrange(LAST), rng.randrange(LAST))
        for _ in range(rng.randint(0, 4))
    ]
    counts, before = rng.choice([(True, False), (True, True), (False, True)])
    if not compares:
        counts, before = True, False
    return Made(
        points, types, rng.random() < 0.5, rng.randint(1, 3), deletions,
        _rank(rng, number), counts, before,
    )  # fmt: skip


def _deletions(made: Made, is_table: bool) -> Deletions:
    def series(name: str) -> PathPattern | TableSeries:
        if is_table:
            return TableSeries("wind", AnyDevice(), frozenset([name] if name else []))
        return PathPattern(f"{TREE}.{name or '*'}")

    return Deletions(Deletion(series(name), low, high) for name, low, high in made.deletions)


def _expected(made: Sequence[Made], is_table: bool) -> dict[int, dict[str, Any]]:
    points = [each.given(is_table) for each in made]
    compares = any(each.before for each in made)

    def top(of: Sequence[int]) -> int | None:
        if not of:
            return None
        rank = highest([made[at].rank for at in of])
        return next(at for at in of if made[at].rank is rank)

    rows: dict[int, dict[str, Any]] = {}
    for time in range(LAST):
        here = [at for at, (_, times) in enumerate(points) if time in times]
        values = {}
        for name in MEASUREMENTS:
            has = [at for at in here if (name, time) in points[at][0]]
            now = top([at for at in has if made[at].counts])
            then = top([at for at in has if made[at].before])
            if now is None:
                continue
            value = points[now][0][name, time]
            is_news = not made[now].before and (
                then is None or points[then][0][name, time] != value
            )
            if is_news or not compares:
                values[name] = (*value, now)
        now = top([at for at in here if made[at].counts])
        is_new = not compares or not any(made[at].before for at in here)
        if values or (is_table and now is not None and is_new):
            rows[time] = values
    return rows


def test_each_time_of_a_series_is_given_once_from_the_highest_file():
    for seed in range(tiers.examples(200)):
        rng = Random(seed)
        is_table, compares = rng.random() < 0.5, rng.random() < 0.4
        made = [_made(rng, number, compares) for number in range(rng.randint(1, 6))]
        bounds = sorted((rng.randrange(LAST), rng.randrange(LAST)))
        start, end = rng.choice([(0, LAST), bounds])
        found = _merged(made, is_table, start, end, rng.randint(1, 30))
        wanted = _expected(made, is_table)
        assert found == {time: row for time, row in wanted.items() if start <= time <= end}, seed


def _merged(
    made: Sequence[Made], is_table: bool, start: int, end: int, batch_rows: int
) -> dict[int, dict[str, Any]]:
    device = TABLE if is_table else TREE
    found: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        sources = []
        for at, each in enumerate(made):
            content = build(
                {device: each.points},
                types=each.types,
                aligned=[TREE] if each.aligned and not is_table else [],
                chunks=each.chunks,
                page_points=7,
            )
            path = Path(folder) / f"{at}.tsfile"
            path.write_bytes(content)
            file = TsFileReader(path, deletions=_deletions(each, is_table))
            sources.append(MergeSource(file, file.tail.devices[0], each.counts, each.before))
        merge = DeviceMerge(sources, Ladder([each.rank for each in made]), origins=True)
        last = -1
        for batch in merge.rows(start, end, batch_rows=batch_rows):
            assert 0 < len(batch.times) <= batch_rows
            for row, time in enumerate(batch.times.tolist()):
                assert time > last
                last = time
                found[time] = {}
                for at, (name, code) in enumerate(merge.columns):
                    value = batch.columns[at][row].as_py()
                    if value is not None:
                        assert name not in found[time]
                        kind = {2: "INT64", 4: "DOUBLE", 5: "TEXT"}[code]
                        found[time][name] = (kind, value, int(batch.origins[at][row]))
        for source in sources:
            source.file.close()
    return found
