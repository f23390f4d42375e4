"""What is written into a database, case by case; each has a database of its own.

Values are made from the row's number alone, so that a run can be repeated. Rows come as records
(typed, so that NaN and infinities get in); structure, deletions and flushes as SQL.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from iotdb_client import Client, Refused, Value
from iotdb_rows import Snapshot, rows_of_tables, rows_of_tree
from iotdb_server import Release, Server

__all__ = ["PROFILES", "Case", "Database", "Profile"]

START: Final = 1_700_000_000_000
"""Milliseconds; all times of a case lie within one partition of a week."""
WEEK: Final = 604_800_000
PROBE: Final = "root.probe"
"""Where series are made to see what a version accepts; nothing is written there."""


class Database:
    """A database under one case's name, its files, and what it has answered."""

    def __init__(
        self, server: Server, client: Client, name: str, *, tables: bool, time_unit: str
    ) -> None:
        self._server = server
        self.release = server.release
        self._client = client
        self.name = name
        self.tables = tables
        self.scale = {"ms": 1, "us": 1_000, "ns": 1_000_000}[time_unit]
        self.snapshots: list[Snapshot] = []
        self._serials = itertools.count()
        self.execute = client.execute
        self.query = client.query

    def record(
        self, device: str, at: int, values: Mapping[str, Value], *, aligned: bool = False
    ) -> None:
        """Insert a row of a device, named from the database on."""
        if aligned and not self.release.aligned:
            return
        self._client.record(f"{self.name}.{device}", at, values, aligned=aligned)

    def attempt(self, sql: str) -> None:
        """Carry out what not every version can."""
        try:
            self.execute(sql)
        except Refused as refusal:
            print(f"    not in this version: {sql!r}: {refusal}")

    def flush(self) -> None:
        """Close all files."""
        self.execute("flush")

    def keep(self, *, deletions: bool) -> None:
        """Remember what the database answers and consists of now; flush first."""
        rows = tuple(
            rows_of_tables(self._client, self.name)
            if self.tables
            else rows_of_tree(self._client, self.name, self.release.below, self._where())
        )
        self.snapshots.append(Snapshot(rows, frozenset(self.files()), deletions))

    def _where(self) -> str:
        if self.release.unbounded:
            return ""
        return f"where time >= {START * self.scale} and time < {(START + WEEK) * self.scale}"

    def files(self) -> Iterator[str]:
        """Relative names of its TsFiles, ``sequence/...`` before ``unsequence/...``."""
        data = self._server.data
        for kind in ("sequence", "unsequence"):
            for path in sorted((data / kind / self.name).rglob("*.tsfile")):
                yield str(path.relative_to(data))

    @property
    def directory(self) -> Path:
        """Where all data is."""
        return self._server.data

    def _serial(self) -> str:
        return f"d.{self.name.replace('.', '_')}_{next(self._serials)}"

    def encodings(self, kind: str) -> list[str]:
        """Which encodings the version accepts for a type: it is asked."""
        accepted = []
        for encoding in ENCODINGS:
            probe = f"{PROBE}.{self._serial()}"
            try:
                self.execute(f"create timeseries {probe} with datatype={kind},encoding={encoding}")
            except Refused:
                continue
            accepted.append(encoding)
        return accepted

    def compressions(self) -> list[str]:
        """Which compressions the version accepts: it is asked."""
        accepted = []
        for name in COMPRESSIONS:
            probe = f"{PROBE}.{self._serial()}"
            try:
                self.execute(
                    f"create timeseries {probe} "
                    f"with datatype=INT32,encoding=PLAIN,compressor={name}"
                )
            except Refused:
                continue
            accepted.append(name)
        return accepted


ENCODINGS: Final = (
    *("PLAIN", "DICTIONARY", "RLE", "DIFF", "TS_2DIFF", "BITMAP", "GORILLA_V1", "REGULAR"),
    *("GORILLA", "ZIGZAG", "CHIMP", "SPRINTZ", "RLBE", "CAMEL"),
)
"""All but FREQ, which 1.0 offers for numbers: what comes back is an approximation."""
ENDS_AT_NAN: Final = ("GORILLA_V1",)
"""A NaN ends what the database reads of a page, though the values behind it are there."""
COMPRESSIONS: Final = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "LZ4", "ZSTD", "LZMA2")
TYPES: Final = (
    *("BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE", "TEXT"),
    *("TIMESTAMP", "DATE", "BLOB", "STRING"),
)

_SPECIAL: Final = {
    "INT32": ("0", "-1", str(2**31 - 1), str(-(2**31)), "7"),
    "INT64": ("0", "-1", str(2**63 - 1), str(-(2**63)), "7"),
    "FLOAT": ("0.0", "-0.0", "3.4028235E38", "1.4E-45", "NaN", "Infinity", "-Infinity", "0.1"),
    "DOUBLE": (
        *("0.0", "-0.0", "1.7976931348623157E308", "4.9E-324", "NaN", "Infinity", "-Infinity"),
        *("0.1", "1e17"),
    ),
    "TEXT": ("", "Größe", "多语言", 'a "quoted", text\nof two lines', "\U0001f600"),
}
_SPECIAL["STRING"] = _SPECIAL["TEXT"]
_SPECIAL["TIMESTAMP"] = _SPECIAL["INT64"]


def value(kind: str, n: int, *, special: bool = False) -> Value:
    """The value of row ``n``: a slow walk, now and then the same again, specials at its head."""
    if special and n < len(_SPECIAL.get(kind, ())):
        return kind, _SPECIAL[kind][n]
    slow = n - n % 3
    match kind:
        case "BOOLEAN":
            text = str(slow % 2 == 0).lower()
        case "INT32":
            text = str(1000 + slow * (1 if slow % 4 else -7))
        case "INT64" | "TIMESTAMP":
            text = str(START + 1_000 * slow + slow % 5)
        case "FLOAT" | "DOUBLE":
            text = str(round(20 + 5 * math.sin(slow / 9), 2 if kind == "FLOAT" else 4))
        case "TEXT" | "STRING":
            text = ("idle", "running", "stopped")[slow % 3] + (str(n) if n % 10 == 0 else "")
        case "DATE":
            text = f"20{24 + n % 3}-{1 + n % 12:02}-{1 + n % 28:02}"
        case "BLOB":
            text = ("AAEC/w==", "", "yv66vg==")[n % 3]
        case _:
            raise ValueError(kind)
    return kind, text


def _columns(db: Database) -> dict[str, tuple[str, str, str]]:
    """Each pair of type and encoding, compressions in turn: {name: (type, encoding, compr.)}."""
    compressions = db.compressions()
    columns: dict[str, tuple[str, str, str]] = {}
    for kind in TYPES:
        for encoding in db.encodings(kind):
            compression = compressions[len(columns) % len(compressions)]
            columns[f"{kind}_{encoding}".lower()] = kind, encoding, compression
    for compression in compressions:
        columns[f"text_in_{compression}".lower()] = "TEXT", "PLAIN", compression
    return columns


ROWS: Final = 40


def plain_types(db: Database) -> None:
    """Types x encodings x compressions of a device whose series stand alone."""
    columns = _columns(db)
    for name, (kind, encoding, compression) in columns.items():
        db.execute(
            f"create timeseries {db.name}.d1.{name} "
            f"with datatype={kind},encoding={encoding},compressor={compression}"
        )
    for n in range(ROWS):
        values = {name: value(kind, n) for name, (kind, _, _) in columns.items()}
        db.record("d1", START + 1000 * n + n % 2, values)
    db.flush()
    db.keep(deletions=False)


def aligned_types(db: Database) -> None:
    """The same of an aligned device, with nulls, specials, an empty series and an empty page."""
    columns = _columns(db)
    series = ", ".join(
        f"{name} {kind} encoding={encoding} compressor={compression}"
        for name, (kind, encoding, compression) in columns.items()
    )
    db.execute(
        f"create aligned timeseries {db.name}.d1"
        f"({series}, never INT32 encoding=RLE compressor=SNAPPY, late DOUBLE)"
    )
    for n in range(ROWS):
        values = {
            name: value(kind, n, special=encoding not in ENDS_AT_NAN)
            for i, (name, (kind, encoding, _)) in enumerate(columns.items())
            if (n + i) % 5
        }
        if n >= 32:
            values["late"] = value("DOUBLE", n)
        db.record("d1", START + 1000 * n, values, aligned=True)
    db.flush()
    db.keep(deletions=False)


def specials(db: Database) -> None:
    """The limits of each type, plain, in each encoding."""
    columns = _columns(db)
    for name, (kind, encoding, compression) in columns.items():
        db.execute(
            f"create timeseries {db.name}.d1.{name} "
            f"with datatype={kind},encoding={encoding},compressor={compression}"
        )
    for n in range(12):
        values = {
            name: value(kind, n, special=encoding not in ENDS_AT_NAN)
            for name, (kind, encoding, _) in columns.items()
        }
        db.record("d1", START + 1000 * n, values)
    db.flush()
    db.keep(deletions=False)


def late(db: Database) -> None:
    """Data behind what is closed already goes to unsequence; where both have a time, it wins."""
    for first, last, factor in ((0, 100, 1), (50, 150, 10), (20, 60, 100), (150, 160, 1)):
        for n in range(first, last):
            values = {"a": ("INT64", str(n * factor)), "b": ("DOUBLE", str(n / factor))}
            if factor == 100:
                del values["b"]
            db.record("plain", START + 1000 * n, values)
            db.record("aligned", START + 1000 * n, values, aligned=True)
        db.flush()
    db.keep(deletions=False)


def _fill(db: Database, devices: tuple[str, ...], rows: range, series: str = "abcd") -> None:
    for n in rows:
        for device in devices:
            values = {name: ("INT32", str(n)) for name in series if n % 7 or name != "d"}
            db.record(device, START + n, values, aligned=device.startswith("aligned"))


def deletions(db: Database) -> None:
    """Deletions before a flush (they never reach the file) and after (beside the file)."""
    devices = ("d1", "d2", "gone", "aligned1", "aligned2", "deep.er.d3")
    _fill(db, devices, range(100))
    root = db.name

    def delete(series: str, first: int, last: int) -> None:
        if "**" in series and db.release.below != "**":
            return  # a `*` at the end of a pattern of 0.12 says the same, but so no reader knows it
        db.execute(
            f"delete from {root}.{series} where time >= {START + first} and time <= {START + last}"
        )

    delete("d1.a", 0, 9)
    delete("aligned1.a", 0, 9)
    delete("aligned2.*", 30, 34)
    # what is written after a deletion lives, though it lies in the deleted range
    _fill(db, ("d1", "aligned1"), range(4, 6), "a")
    db.flush()
    db.keep(deletions=False)
    delete("d1.a", 20, 29)
    delete("d1.a", 25, 39)  # overlaps the one before
    delete("d1.b", 50, 50)
    delete("aligned1.b", 20, 29)
    delete("*.c", 60, 64)
    delete("**", 90, 94)
    delete("deep.**", 0, 4)
    delete("aligned2.*", 40, 44)
    db.execute(f"delete from {root}.d2.d where time <= {START + 19}")
    db.execute(f"delete from {root}.aligned1.d where time > {START + 79}")
    db.execute(f"delete from {root}.gone.*")
    db.attempt(f"delete timeseries {root}.d2.c")
    _fill(db, ("d1", "aligned1"), range(22, 27), "ab")
    db.flush()
    delete("d1.b", 24, 24)
    db.keep(deletions=True)


NODES: Final = ("`a.b`", "`1`", "`x``y`", "`with blank`", "`größe`", "设备", "`null`", "`d:1`")


def names(db: Database) -> None:
    """Names with dots, back-ticks, blanks, digits, letters of several scripts."""
    for node in ('"a.b"', "1", "设备") if db.release.version < "1" else NODES:
        for n in range(3):
            row = {"plain": ("INT32", str(n)), node: ("TEXT", node)}
            try:
                db.record(node, START + n, row)
                db.record(f"aligned.{node}", START + n, row, aligned=True)
            except Refused as refusal:
                print(f"    not in this version: {node!r}: {refusal}")
    db.flush()
    db.keep(deletions=False)


def precision(db: Database) -> None:
    """Times of the precision that the server was started with."""
    step, scale = 1, db.scale
    for n in range(60):
        step = step * 3 % 1009
        at = START * scale + n * scale + step * scale // 1009
        db.record("d1", at, {"a": ("INT64", str(at)), "b": ("FLOAT", str(n / 4))})
        db.record("d2", at, {"a": ("DOUBLE", str(n))}, aligned=True)
    db.flush()
    db.keep(deletions=False)


def chunks(db: Database) -> None:
    """Several chunks a series: the memory table is written out before the file is closed."""
    for part in range(3):
        for n in range(120 * part, 120 * part + 120):
            values = {"a": value("INT64", n), "b": value("DOUBLE", n), "c": value("TEXT", n)}
            if part == 1:
                del values["c"]
            db.record("plain", START + 1000 * n, values)
            if n % 4:
                values.pop("b")
            db.record("aligned", START + 1000 * n, values, aligned=True)
    db.flush()
    db.keep(deletions=False)


def compacted(db: Database) -> None:
    """Four files that the server has merged into one, deleted rows left out by the merge."""
    for part in range(4):
        for n in range(100 * part, 100 * part + 100):
            values = {"a": value("INT32", n), "b": value("FLOAT", n), "c": value("TEXT", n)}
            db.record("plain", START + 1000 * n, values)
            values.pop("b" if n % 3 else "c")
            db.record("aligned", START + 1000 * n, values, aligned=True)
        db.flush()
        if part == 1:
            db.execute(
                f"delete from {db.name}.*.a "
                f"where time >= {START + 10_000} and time <= {START + 29_000}"
            )
    _wait(lambda: len(list(db.files())) == 1)
    db.keep(deletions=False)


def _wait(condition: Callable[[], bool], seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("what was waited for has not come")
        time.sleep(0.5)


def table_types(db: Database) -> None:
    """All types as fields of a table; tags that are null, empty, or not plain; an attribute."""
    fields = ", ".join(f"f_{kind.lower()} {kind} FIELD" for kind in TYPES)
    db.execute(
        f"create table sensors (plant STRING TAG, line STRING TAG, unit STRING TAG, "
        f"maker STRING ATTRIBUTE, {fields})"
    )
    tags = (
        *("'north', 'l1', 'u1'", "'north', 'l1', null", "'north', null, 'u1'", "null, null, null"),
        *("'', '', ''", "'null', 'a.b', 'x`y'", "'größe', '多语言', 'with blank'"),
    )
    names = ", ".join(f"f_{kind.lower()}" for kind in TYPES)
    for n in range(30):
        for i, key in enumerate(tags):
            values = ", ".join(_literal(*value(kind, n), null=(n + i) % 4 == 0) for kind in TYPES)
            db.execute(
                f"insert into sensors(time, plant, line, unit, maker, {names}) "
                f"values ({START + 1000 * n}, {key}, 'maker{i}', {values})"
            )
    db.execute("create table untagged (reading DOUBLE FIELD, note TEXT FIELD)")
    for n in range(30):
        db.execute(f"insert into untagged(time, reading, note) values ({START + n}, {n}.5, 'n{n}')")
    db.flush()
    db.keep(deletions=False)


def _literal(kind: str, text: str, *, null: bool) -> str:
    if null:
        return "null"
    match kind:
        case "TEXT" | "STRING" | "DATE":
            return f"'{text}'"
        case "BLOB":
            return {"AAEC/w==": "X'000102ff'", "": "X''", "yv66vg==": "X'cafebabe'"}[text]
        case _:
            return text


def table_deletions(db: Database) -> None:
    """Deletions from a table by time, by tags in each form, of whole devices."""
    db.execute(
        "create table t (region STRING TAG, device STRING TAG, a INT32 FIELD, b DOUBLE FIELD)"
    )
    db.execute("create table other (region STRING TAG, a INT32 FIELD)")
    keys = [f"'{region}', '{name}'" for region in "nsew" for name in ("d1", "d2")]
    keys += ["null, 'd1'", "'n', null", "null, null"]
    for n in range(0, 100, 2):
        rows = ", ".join(f"({START + n}, {key}, {n}, {n / 2})" for key in keys)
        db.execute(f"insert into t(time, region, device, a, b) values {rows}")
        db.execute(f"insert into other(time, region, a) values ({START + n}, 'n', {n})")
    db.execute(f"delete from t where time <= {START + 3}")
    db.flush()
    db.keep(deletions=False)
    for condition in (
        f"time >= {START + 10} and time <= {START + 13}",
        f"region = 'n' and time >= {START + 20} and time <= {START + 29}",
        f"region = 's' and device = 'd2' and time < {START + 40}",
        f"region is null and time >= {START + 50} and time < {START + 60}",
        f"device is null and time > {START + 90}",
        f"device = 'd1' and time >= {START + 70} and time <= {START + 71}",
        "region = 'w' and device = 'd1'",
    ):
        db.execute(f"delete from t where {condition}")
    db.attempt(f"delete from t where region is not null and time = {START + 80}")
    db.attempt("delete devices from t where region = 'e' and device = 'd2'")
    db.execute(f"insert into t(time, region, device, a) values ({START + 22}, 'n', 'd1', -22)")
    db.flush()
    db.keep(deletions=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A database to fill.

    Attributes:
        name: of the files; the database is called ``root.<name>``, or ``<name>`` with tables.
        fill: writes it and keeps what it answers.
        tables: whether it is of the table model.
    """

    name: str
    fill: Callable[[Database], None]
    tables: bool = False

    @property
    def database(self) -> str:
        """The database's name."""
        return self.name if self.tables else f"root.{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """Cases that one configuration of a server serves."""

    name: str
    settings: Mapping[str, str]
    cases: tuple[Case, ...]
    time_unit: str = "ms"

    def of(self, release: Release) -> list[Case]:
        """Those that the release can do."""
        return [
            case
            for case in self.cases
            if (release.format == 4 or not case.tables)
            and (release.aligned or case.fill is not aligned_types)
        ]


_NO_COMPACTION: Final = {
    "enable_seq_space_compaction": "false",
    "enable_unseq_space_compaction": "false",
    "enable_cross_space_compaction": "false",
    "enable_auto_repair_compaction": "false",
}
_NO_TIMER: Final = {
    "enable_timed_flush_seq_memtable": "false",
    "enable_timed_flush_unseq_memtable": "false",
}

PROFILES: Final = (
    Profile(
        "main",
        {
            **_NO_COMPACTION,
            **_NO_TIMER,
            "compaction_strategy": "NO_COMPACTION",
            "max_number_of_points_in_page": "16",
        },
        (
            Case("plain_types", plain_types),
            Case("aligned_types", aligned_types),
            Case("specials", specials),
            Case("late", late),
            Case("deletions", deletions),
            Case("names", names),
        ),
    ),
    Profile(
        "tables",
        {**_NO_COMPACTION, **_NO_TIMER, "max_number_of_points_in_page": "16"},
        (
            Case("table_types", table_types, tables=True),
            Case("table_deletions", table_deletions, tables=True),
        ),
    ),
    Profile(
        "chunks",
        {
            **_NO_COMPACTION,
            **_NO_TIMER,
            "compaction_strategy": "NO_COMPACTION",
            "enable_mem_control": "false",
            "avg_series_point_number_threshold": "100",
            "tsfile_size_threshold": "100000000",
        },
        (Case("chunks", chunks),),
    ),
    Profile(
        "compaction",
        {
            **_NO_TIMER,
            "inner_compaction_candidate_file_num": "4",
            "max_inner_compaction_candidate_file_num": "4",
            "seq_file_num_in_each_level": "4",
            "chunk_size_lower_bound_in_compaction": "10",  # small chunks are carried over whole
            "chunk_point_num_lower_bound_in_compaction": "10",
            "target_chunk_point_num": "50",
            "compaction_schedule_interval_in_ms": "2000",
        },
        (Case("compacted", compacted),),
    ),
    Profile(
        "us", {**_NO_COMPACTION, "timestamp_precision": "us"}, (Case("times_us", precision),), "us"
    ),
    Profile(
        "ns", {**_NO_COMPACTION, "timestamp_precision": "ns"}, (Case("times_ns", precision),), "ns"
    ),
)
