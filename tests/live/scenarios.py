"""What is written into one database each, in two parts: before and after files were compacted.

Times count from the begin of a partition, so that each database has one partition; values tell
when they were written, so that an answer tells which write it is from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tests.live.server import Kind

WEEK = 604_800_000
BEGIN = 1_000 * WEEK


@dataclass(frozen=True)
class Scenario:
    """One database.

    Attributes:
        first: statements before anything is compacted.
        second: statements after files of one kind have been.
        table: whether it is a database of tables.
        aligned: whether it needs aligned devices.
        between: a time behind all of the first part and before what follows it in the second.
        ttl_below: the server gives nothing below this time, after the second part.
        again: what is said once more after the last start: a TTL does not outlive one in 1.0.1 and
            2.0.1-beta as they are set up here.
        drops: whether it deletes series.
    """

    name: str
    first: Sequence[str]
    second: Sequence[str] = ()
    table: bool = False
    aligned: bool = False
    between: int = BEGIN
    ttl_below: int | None = None
    again: Sequence[str] = ()
    drops: bool = False

    def knock(self, at: int) -> list[str]:
        """One more file, since a server of 0.12 looks at nothing before that.

        After a start it compacts a partition only once a file of it was closed. The device is one
        of the unsequence files: its merge fails at a device that one of them does not have.
        """
        return [f"insert into {self.group}.d1(timestamp,s1) values({at},0)", "flush"]

    @property
    def group(self) -> str:
        return self.name if self.table else f"root.{self.name}"

    def runs_on(self, kind: Kind) -> bool:
        return (
            (kind.tables or not self.table)
            and (kind.aligned or not self.aligned)
            and (kind.drops or not self.drops)
        )


class _Writes:
    """Makes statements, and gives each written value a number of its own."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.statements: list[str] = []
        self._written = 0

    def __call__(
        self,
        times: Iterable[int],
        *,
        device: str = "d1",
        series: Sequence[str] = ("s1",),
        value: Callable[[int], str] = str,
        aligned: bool = False,
        begin: int = BEGIN,
    ) -> None:
        """A statement for each row: servers of 0.12 know no others."""
        word = "aligned values" if aligned else "values"
        for t in times:
            cells = []
            for _ in series:
                self._written += 1
                cells.append(value(self._written))
            self.statements.append(
                f"insert into {self.group}.{device}(timestamp,{','.join(series)})"
                f" {word}({begin + t},{','.join(cells)})"
            )

    def make(self, *series: str, kind: str = "INT64", encoding: str = "PLAIN") -> None:
        for each in series:
            self.statements.append(
                f"create timeseries {self.group}.{each} with datatype={kind},encoding={encoding}"
            )

    def flush(self, sequence: bool | None = None) -> None:
        word = "" if sequence is None else f" {str(sequence).lower()}"
        self.statements.append(f"flush {self.group}{word}")

    def delete(self, series: str, low: int, high: int, begin: int = BEGIN) -> None:
        self.statements.append(
            f"delete from {self.group}.{series} where time>={begin + low} and time<={begin + high}"
        )

    def sql(self, text: str) -> None:
        self.statements.append(text)

    def part(self) -> list[str]:
        done, self.statements = self.statements, []
        return done


def _late() -> Scenario:
    w = _Writes("root.late")
    w.make("d1.s1", "d2.s1")
    for begin in (0, 100, 200):
        w(range(begin, begin + 20))
        w(range(begin, begin + 20), device="d2")
        w.flush()
    w(range(30, 60))
    w.flush()
    w(range(50, 90, 2))
    w(range(10, 15), device="d2")
    w.flush()
    first = w.part()
    w(range(130, 170))
    w.flush()
    w(range(300, 310))
    w.flush()
    return Scenario("late", first, w.part(), between=BEGIN + 250)


def _updates() -> Scenario:
    w = _Writes("root.updates")
    w.make("d1.s1", "d1.s2")
    w(range(10))
    w(range(10), series=["s2"])
    w.flush()
    w([5, 6])
    w.flush()
    w([6, 7])
    w(range(10, 20))
    w.flush()
    w([5, 12], series=["s1", "s2"])
    w.flush()
    first = w.part()
    w([3, 5, 7, 15])
    w.flush()
    w([7, 9])
    w.flush()
    return Scenario("updates", first, w.part(), between=BEGIN + 30)


def _opened_before() -> Scenario:
    """An update in an unsequence file that was opened before the sequence file with the value."""
    w = _Writes("root.openedbefore")
    w.make("d1.s1")
    w(range(10))
    w.flush()
    w([3])  # opens the unsequence file, which stays open
    w(range(20, 30))
    w.flush(True)
    w([25, 26])
    w.flush()
    first = w.part()
    w([4])
    w(range(40, 50))
    w.flush(True)
    w([41, 42, 26])
    w.flush()
    return Scenario("openedbefore", first, w.part(), between=BEGIN + 35)


def _chunks() -> Scenario:
    """Memtables that are flushed into one file, which stays open: overlapping chunks."""
    w = _Writes("root.chunks")
    w.make("d1.s1")
    w(range(0, 200, 2))
    w.flush()
    w(range(0, 80, 4))
    w(range(40, 120, 4))
    w(range(0, 160, 8))
    w(range(100, 140, 1))
    w.flush()
    first = w.part()
    w(range(20, 60))
    w(range(40, 80))
    w.flush()
    return Scenario("chunks", first, w.part(), between=BEGIN + 230)


def _deletions() -> Scenario:
    w = _Writes("root.deletions")
    w.make("d1.s1", "d1.s2", "d2.s1")
    for begin in (0, 50):
        w(range(begin, begin + 40), series=["s1", "s2"])
        w(range(begin, begin + 40), device="d2")
        w.flush()
    w(range(10, 30, 2))
    w.flush()
    w.delete("d1.s1", 12, 14)  # in files of both kinds
    w(range(20, 25))
    w.delete("d1.s1", 20, 22)  # in a memtable and in closed files
    w([21])  # written again after it
    w.flush()
    w.delete("d1.s2", 60, 1000)
    w([70, 71], series=["s2"])
    w.flush()
    w.delete("d2.*", 5, 9)
    first = w.part()
    w.delete("d1.*", 30, 55)
    w(range(28, 36))
    w.flush()
    w.delete("d1.s1", 0, 3)
    w(range(100, 110))
    w.delete("d1.s1", 105, 107)
    w.flush()
    return Scenario("deletions", first, w.part(), between=BEGIN + 95)


def _deleted_series() -> Scenario:
    w = _Writes("root.deletedseries")
    w.make("d1.s1", "d1.s2", "d2.s1")
    w(range(20), series=["s1", "s2"])
    w(range(20), device="d2")
    w.flush()
    w(range(5, 15), series=["s1", "s2"])
    w.flush()
    w.sql("delete timeseries root.deletedseries.d1.s2")
    first = w.part()
    w(range(30, 40))
    w.flush()
    w.make("d1.s2")
    w(range(35, 45), series=["s2"])
    w.flush()
    w([7, 8], series=["s1"])
    w.flush()
    return Scenario("deletedseries", first, w.part(), between=BEGIN + 25, drops=True)


def _deleted_open() -> Scenario:
    """A deletion when chunks of the file that is still open were flushed."""
    w = _Writes("root.deletedopen")
    w.make("d1.s1")
    w(range(45))
    w.delete("d1.s1", 10, 40)
    w(range(50, 60))
    w.flush()
    w(range(36))
    w(range(20, 30))
    w.delete("d1.s1", 4, 24)
    w([20, 21])
    w.flush()
    first = w.part()
    w([15])
    w.flush()
    return Scenario("deletedopen", first, w.part(), between=BEGIN + 70)


def _types() -> Scenario:
    w = _Writes("root.types")
    w.make("d1.i", kind="INT32", encoding="RLE")
    w.make("d1.f", kind="FLOAT", encoding="GORILLA")
    w.make("d1.d", kind="DOUBLE", encoding="GORILLA")
    w.make("d1.b", kind="BOOLEAN", encoding="RLE")
    w.make("d1.t", kind="TEXT", encoding="PLAIN")

    def part(times: Iterable[int]) -> None:
        times = list(times)
        w(times, series=["i"])
        w(times, series=["f"], value=lambda n: f"{n}.5")
        w(times, series=["d"], value=lambda n: f"{n}.25")
        w(times, series=["b"], value=lambda n: str(n % 3 == 0).lower())
        w(times, series=["t"], value=lambda n: f"'w{n}'")

    for times in (range(20), range(20, 40), [5, 6, 25], [6, 7]):
        part(times)
        w.flush()
    first = w.part()
    part([7, 26])
    w.flush()
    return Scenario("types", first, w.part(), between=BEGIN + 50)


def _expired() -> Scenario:
    """A TTL that stands in the middle of the data, set after the files were closed."""
    w = _Writes("root.expired")
    minute, now = 60_000, int(time.time() * 1000)
    begin = now - now % WEEK
    if now - begin < 1200 * minute:
        begin -= WEEK
    w.make("d1.s1", "d2.s1")
    w(range(0, 1000 * minute, 50 * minute), begin=begin)
    w(range(0, 200 * minute, 50 * minute), device="d2", begin=begin)
    w.flush()
    w(range(0, 300 * minute, 25 * minute), begin=begin)
    w.flush()
    w(range(400 * minute, 600 * minute, 25 * minute), begin=begin)
    w.flush()
    first = w.part()
    # What is before the 510th minute is beyond it for as long as a play takes.
    ttl = f"set ttl to root.expired {now - begin - 510 * minute}"
    w.sql(ttl)
    w(range(1000 * minute, 1100 * minute, 50 * minute), begin=begin)
    w.flush()
    between, below = begin + 980 * minute, begin + 510 * minute
    return Scenario("expired", first, w.part(), between=between, ttl_below=below, again=[ttl])


def _aligned() -> Scenario:
    w = _Writes("root.aligned")
    w.sql("create aligned timeseries root.aligned.d1(s1 INT64, s2 INT64, s3 INT64)")
    every = ["s1", "s2", "s3"]
    w(range(20), series=every, aligned=True)
    w.flush()
    w(range(20, 40), series=["s1", "s3"], aligned=True)
    w.flush()
    w(range(5, 12), series=["s1"], aligned=True)  # nulls above values
    w.flush()
    w(range(8, 25), series=["s2"], aligned=True)
    w.flush()
    w.delete("d1.s2", 10, 12)
    w.delete("d1.s1", 6, 6)
    w([11, 6], series=["s2"], aligned=True)
    w.flush()
    first = w.part()
    w([6, 30], series=["s3"], aligned=True)
    w.delete("d1.*", 15, 16)
    w([16], series=["s1"], aligned=True)
    w.flush()
    w(range(50, 55), series=["s2"], aligned=True)
    w.flush()
    return Scenario("aligned", first, w.part(), aligned=True, between=BEGIN + 45)


class _TableWrites(_Writes):
    def rows(self, times: Iterable[int], tag: str, columns: Sequence[str]) -> None:
        rows = []
        for t in times:
            cells = []
            for _ in columns:
                self._written += 1
                cells.append(str(self._written))
            rows.append(f"({BEGIN + t},'{tag}',{','.join(cells)})")
        self.sql(
            f"insert into {self.group}.t1(time,tag1,{','.join(columns)}) values {','.join(rows)}"
        )


def _tables() -> Scenario:
    w = _TableWrites("tables")
    w.sql(
        "create table tables.t1(tag1 string tag, kept string attribute,"
        " m1 int64 field, m2 int64 field)"
    )
    for tag in ("a", "b"):
        w.rows(range(20), tag, ["m1", "m2"])
    w.sql("flush")
    w.rows(range(5, 10), "a", ["m1"])
    w.rows(range(20, 30), "a", ["m1"])
    w.sql("flush")
    w.rows(range(8, 12), "a", ["m2"])
    w.sql("flush")
    w.sql(f"delete from tables.t1 where time>={BEGIN + 9} and time<={BEGIN + 10} and tag1='a'")
    w.rows([9], "a", ["m2"])
    w.sql("flush")
    w.sql(f"delete from tables.t1 where time<={BEGIN + 3} and tag1='b'")
    first = w.part()
    w.rows([2, 8], "b", ["m1"])
    w.sql("flush")
    w.sql(f"delete from tables.t1 where time>={BEGIN + 25} and tag1='a'")
    w.rows(range(40, 45), "b", ["m1", "m2"])
    w.sql("flush")
    return Scenario("tables", first, w.part(), table=True)


def scenarios(kind: Kind) -> list[Scenario]:
    """Those that a version can play."""
    every = [
        _late(),
        _updates(),
        _opened_before(),
        _chunks(),
        _deletions(),
        _deleted_open(),
        _deleted_series(),
        _types(),
        _expired(),
        _aligned(),
        _tables(),
    ]
    return [each for each in every if each.runs_on(kind)]
