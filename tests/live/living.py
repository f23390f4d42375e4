"""A database's server that lives as an edge: random writes, and what it answers."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from receiver.spark.source.datasource import TsFileSource
from tests.live.scenarios import WEEK
from tests.live.server import Server

Cells: TypeAlias = dict[tuple[str, int], int]
"""(series, time) -> the number of the write that the value is of."""

STEP = 600_000
"""Between two times; the end of a TTL moves by less while a server lives."""
WEEKS = 2
PLAIN, LINED, TABLES = "root.live", "root.lined", "tlive"


def difference(given: Mapping[Any, int], wanted: Mapping[Any, int]) -> dict[Any, Any]:
    """(given, wanted) where they differ."""
    return {
        key: (given.get(key), wanted.get(key))
        for key in sorted(given.keys() | wanted.keys())
        if given.get(key) != wanted.get(key)
    }


class Living:
    """One server with a database of each form that it knows.

    Every value is the number of its write, so that an answer tells which one it is from.

    Attributes:
        floor: no time below is answered: a TTL.
        said: every statement so far.
        written: number of the last write.
    """

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.floor = 0
        self.said: list[str] = []
        self._begin = (int(time.time() * 1000) // WEEK - WEEKS - 1) * WEEK
        self._front = [0] * WEEKS
        self.written = 0
        self._deleted: list[tuple[re.Pattern[str], int, int, int]] = []
        kind = server.kind
        self._forms = [PLAIN] + [LINED] * kind.aligned + [TABLES] * kind.tables

    # -- statements --------------------------------------------------------------------------

    def say(self, sql: str, *, table: bool = False) -> None:
        self.said.append(sql)
        self.server.say(sql, table=table)

    def create(self) -> None:
        kind = self.server.kind
        self.say(f"{kind.groups} {PLAIN}")
        for series in ("d1.s1", "d1.s2", "d2.s1", "d2.s2"):
            self.say(f"create timeseries {PLAIN}.{series} with datatype=INT64,encoding=PLAIN")
        if LINED in self._forms:
            self.say(f"{kind.groups} {LINED}")
            self.say(f"create aligned timeseries {LINED}.d1(s1 INT64, s2 INT64)")
        if TABLES in self._forms:
            self.say(f"create database {TABLES}", table=True)
            self.say(
                f"create table {TABLES}.t1(tag1 string tag, s1 int64 field, s2 int64 field)",
                table=True,
            )

    def step(self, *, deletes: bool = True) -> None:
        """Some of everything, mostly in order."""
        for form in self._forms:
            week = self.random.randrange(WEEKS)
            front = self._front[week]
            count = self.random.randrange(5, 15)
            self._front[week] += count
            self._rows(form, week, range(front, front + count))
            if front and self.random.random() < 0.8:
                late = self.random.sample(range(front), min(front, self.random.randrange(1, 8)))
                self._rows(form, week, late)
            if deletes and front and self.random.random() < 0.35:
                self._delete(form, week, front)
            if self.random.random() < 0.4:
                again = range(front, self._front[week], self.random.randrange(1, 4))
                self._rows(form, week, again)
            if self.random.random() < 0.3:
                self.flush()

    def flush(self) -> None:
        self.say("flush")

    def expire_from(self, part: float) -> None:
        """A TTL from the next life on, which ends within what the first week has."""
        self.floor = self._at(0, int(self._front[0] * part))

    def restarted(self) -> None:
        """Say again what a server as it is set up here forgets."""
        if self.floor:
            self.say(f"set ttl to {PLAIN} {int(time.time() * 1000) - self.floor}")

    def _at(self, week: int, place: int) -> int:
        return self._begin + week * WEEK + place * STEP

    def _number(self) -> int:
        self.written += 1
        return self.written

    def _rows(self, form: str, week: int, places: Sequence[int]) -> None:
        series = self.random.choice([("s1",), ("s2",), ("s1", "s2")])
        device = self.random.choice(("d1", "d1", "d2"))
        if self.server.version.startswith("0.12"):
            # Its compactions lose a series that the first file's device lacks, and its merges fail
            # at a device that not all files have.
            for each in ("d1", "d2"):
                self._rows_of(form, week, places, each, ("s1", "s2"))
        else:
            self._rows_of(form, week, places, device, series)

    def _rows_of(
        self, form: str, week: int, places: Sequence[int], device: str, series: Sequence[str]
    ) -> None:
        for place in places:
            at = self._at(week, place)
            if form == PLAIN and at < self.floor + STEP:
                continue  # servers refuse what is past its TTL
            cells = ",".join(str(self._number()) for _ in series)
            names = ",".join(series)
            if form == TABLES:
                self.say(
                    f"insert into {TABLES}.t1(time,tag1,{names}) values({at},'{device}',{cells})",
                    table=True,
                )
                continue
            word = "aligned values" if form == LINED else "values"
            where = "d1" if form == LINED else device
            self.say(f"insert into {form}.{where}(timestamp,{names}) {word}({at},{cells})")

    def _delete(self, form: str, week: int, front: int) -> None:
        low = self.random.randrange(front)
        high = low + self.random.randrange(1, 10)
        first, last = self._at(week, low), self._at(week, high)
        span = f"time>={first} and time<={last}"
        if form == TABLES:
            what = f"{TABLES}.t1.d1.*"
            self.say(f"delete from {TABLES}.t1 where {span} and tag1='d1'", table=True)
        else:
            what = f"{form}.{self.random.choice(('d1.s1', 'd1.s2', 'd1.*'))}"
            self.say(f"delete from {what} where {span}")
        series = re.compile(re.escape(what).replace(r"\*", ".*"))
        self._deleted.append((series, first, last, self.written))

    def deletion_of(self, key: tuple[str, int], value: int) -> int:
        """How much was written when a value was deleted last; 0 if it never was."""
        return max(
            (
                number
                for series, first, last, number in self._deleted
                if first <= key[1] <= last and value <= number and series.fullmatch(key[0])
            ),
            default=0,
        )

    # -- answers -----------------------------------------------------------------------------

    def answer(self) -> Cells:
        """What the server gives, of all databases."""
        found: Cells = {}
        for form in self._forms:
            found.update(self._table() if form == TABLES else self._tree(form))
        return self.above(found)

    def above(self, cells: Cells) -> Cells:
        """Without what a TTL may hide."""
        return {
            key: value
            for key, value in cells.items()
            if key[1] >= self.floor + STEP or not key[0].startswith(PLAIN)
        }

    def _tree(self, group: str) -> Iterator[tuple[tuple[str, int], int]]:
        every = f"** from {group}" if self.server.kind.aligned else f"* from {group}.*"
        for week in range(WEEKS):
            first = self._begin + week * WEEK
            answered = self.server.say(
                f"select {every} where time >= {first} and time < {first + WEEK}"
            )
            for at, *values in answered["rows"]:
                for name, value in zip(answered["columns"][1:], values, strict=True):
                    if value is not None:
                        yield (name, at), int(value)

    def _table(self) -> Iterator[tuple[tuple[str, int], int]]:
        answered = self.server.say(f"select tag1,time,s1,s2 from {TABLES}.t1", table=True)
        for row in answered["rows"]:
            tag, at, *values = row[1:]
            for name, value in zip(("s1", "s2"), values, strict=True):
                if value is not None:
                    yield (f"{TABLES}.t1.{tag}.{name}", int(at)), int(value)


def centre_answer(schema_dir: Path) -> Cells:
    """What readers get at a receiver: its catalogue, by the data source that merges."""
    source = TsFileSource({"catalog": str(schema_dir), "form": "long"})
    reader = source.reader(source.schema())
    found: Cells = {}
    for partition in reader.partitions():
        for batch in reader.read(partition):
            for row in batch.to_pylist():
                device = row["device"].replace("/", ".").replace(":", ".").strip(".")
                key = (f"{device}.{row['measurement']}", row["time"])
                value = next(v for k, v in row.items() if k.startswith("value") and v is not None)
                assert key not in found, f"twice: {key}"
                found[key] = value
    return found
