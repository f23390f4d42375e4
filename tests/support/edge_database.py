"""A database at an edge that is not ours: real files in real directories, and its own answer.

It writes (in order, late, again), flushes, closes, deletes, lets expire, compacts, moves and
restarts as an IoTDB 1.x does, and answers a query from what it has in mind, never from its files.
Each write has its own number, which is the value of its point, so a value tells when it was
written. Times are small integers; how points lie in files is a matter of the database's shape.
"""

from __future__ import annotations

import copy
import hashlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.support.edge_shapes import (
    ALL,
    EVERYWHERE,
    PLAIN,
    ROW,
    SERIES,
    SPAN,
    DeletionLine,
    Key,
    Points,
    Shape,
)
from tests.support.tsfile_bytes import flushed

CREATED = 1_581_324_718_762

Name: TypeAlias = tuple[int, int, int, int, int]
"""What the database ranks by: (0 sequence, 1 unsequence; version, creation, inner, cross)."""


@dataclass(frozen=True)
class Deletion:
    """A record of a deletion file; `chunks` is how many it concerns, its offset says so on disk."""

    line: DeletionLine
    chunks: int

    def hides(self, key: Key, chunk: int) -> bool:
        return chunk < self.chunks and self.line.hides(key)


@dataclass
class DatabaseFile:
    """A TsFile, open or closed; `home` is the number of its data directory, `md5` its digest."""

    partition: int
    name: Name
    home: int = 0
    shape: Shape = PLAIN
    chunks: list[Points] = field(default_factory=list)
    memory: Points = field(default_factory=dict)
    deletions: list[Deletion] = field(default_factory=list)
    open: bool = False
    md5: str = ""

    @property
    def late(self) -> bool:
        return self.name[0] == 1

    @property
    def is_product(self) -> bool:
        return self.name[3:] != (0, 0)

    @property
    def keys(self) -> set[Key]:
        return set(self.memory).union(*self.chunks)

    def span(self, lane: str) -> tuple[int, int] | None:
        """The first and last time of a device."""
        times = [time for name, time in self.keys if self.shape.lane(name) == lane]
        return (min(times), max(times)) if times else None

    def overlaps(self, other: DatabaseFile) -> bool:
        spans = [(self.span(lane), other.span(lane)) for lane in self.shape.lanes]
        return any(a and b and a[0] <= b[1] and b[0] <= a[1] for a, b in spans)

    @property
    def points(self) -> Points:
        """What it gives by itself: deletions applied, the later chunk above."""
        found: Points = {}
        for number, chunk in enumerate(self.chunks):
            for key, value in chunk.items():
                if not any(each.hides(key, number) for each in self.deletions):
                    found[key] = value
        return found | self.memory

    def path(self, group: str) -> str:
        kind, version, creation, inner, cross = self.name
        stem = f"{CREATED + creation}-{version}-{inner}-{cross}"
        directory = f"{('sequence', 'unsequence')[kind]}/{group}/0/{self.partition}"
        return f"{directory}/{stem}.tsfile"


Contents: TypeAlias = dict[str, list[tuple[int, Points]]]
"""MD5 of each content that was ever closed -> (offset of a chunk's header, its points)."""


class EdgeDatabase:
    """A database with one storage group.

    Attributes:
        shape: of its files.
        files: in no order.
        floor: its TTL: times below are not given.
        log: number of a deletion -> (series, low, high, the last write before it).
        first_deletion: behind which its deletions are numbered.
        contents: of all files that it ever closed.
    """

    def __init__(self, shape: Shape, homes: Sequence[Path]) -> None:
        self.shape, self.group, self.homes = shape, shape.group, list(homes)
        self.files: list[DatabaseFile] = []
        self.flushed: dict[tuple[int, str], int] = {}
        self.versions: dict[int, int] = {}
        self.clock = self.writes = self.floor = 0
        self.log: dict[int, tuple[str, int, int, int]] = {}
        self.first_deletion = 0
        self.contents: Contents = {}

    # -- looking ---------------------------------------------------------------------------

    def closed(self, late: bool | None = None, partition: int | None = None) -> list[DatabaseFile]:
        """Closed files, the lowest first."""
        found = (
            each
            for each in self.files
            if not each.open and late in (None, each.late) and partition in (None, each.partition)
        )
        return sorted(found, key=lambda each: (each.partition, each.name))

    def opened(self) -> list[DatabaseFile]:
        return [each for each in self.files if each.open]

    def answer(self, *, ttl: bool = True) -> Points:
        """What a query gives, of what is closed."""
        found: Points = {}
        for each in self.closed():
            found.update(each.points)
        return {key: value for key, value in found.items() if not ttl or key[1] >= self.floor}

    def where(self, file: DatabaseFile) -> Path:
        return self.homes[file.home] / file.path(self.group)

    # -- writing ---------------------------------------------------------------------------

    def write(self, series: str, time: int, value: int | None = None) -> int:
        """Write a point; returns its value, the number of the write where none is given.

        Of the series `ROW` of a table: a row without values.
        """
        partition, lane = time // SPAN, self.shape.lane(series)
        late = int(time <= self.flushed.get((partition, lane), -1))
        file = next((f for f in self.opened() if (f.partition, f.late) == (partition, late)), None)
        if file is None:
            self.versions[partition] = version = self.versions.get(partition, 0) + 1
            self.clock += 1
            name = late, version, self.clock, 0, 0
            file = DatabaseFile(partition, name, shape=self.shape, open=True)
            self.files.append(file)
            self._store(file)
        self.writes += 1
        file.memory[series, time] = self.writes if value is None else value
        if self.shape.table:
            file.memory[ROW, time] = 1
        return file.memory[series, time]

    def flush(self, file: DatabaseFile) -> None:
        if not file.memory:
            return
        file.chunks.append(file.memory)
        for series, time in file.memory:
            key = file.partition, self.shape.lane(series)
            if not file.late:
                self.flushed[key] = max(self.flushed.get(key, -1), time)
        file.memory = {}
        self._store(file)

    def close(self, file: DatabaseFile) -> None:
        self.flush(file)
        file.open = False
        if file.chunks:
            self._store(file)
        else:
            self._remove(file)

    def load(self, kept: DatabaseFile) -> DatabaseFile:
        """A file that was closed before comes once more, as it was, under the next late name."""
        self.versions[kept.partition] = version = self.versions.get(kept.partition, 0) + 1
        self.clock += 1
        name = 1, version, self.clock, 0, 0
        file = DatabaseFile(
            kept.partition, name, shape=self.shape, chunks=copy.deepcopy(kept.chunks)
        )
        self.files.append(file)
        self._store(file)
        for series, time in file.keys:
            key = file.partition, self.shape.lane(series)
            self.flushed[key] = max(self.flushed.get(key, -1), time)
        return file

    def delete(self, series: str, low: int, high: int) -> int:
        """Delete points; returns the number of the deletion. Of a table, all series."""
        if self.shape.form == "mods2":  # it holds in all of a file
            for file in self.opened():
                self.close(file)
        series = ALL if self.shape.table else series
        number = self.first_deletion + len(self.log) + 1
        self.log[number] = (series, low, high, self.writes)
        for file in self.files:
            line = DeletionLine(number, series, low, high, EVERYWHERE)
            file.memory = {key: value for key, value in file.memory.items() if not line.hides(key)}
            span = file.span(self.shape.lane(series))
            if file.chunks and span and span[0] <= high and low <= span[1]:
                if file.open:
                    line = line._replace(offset=self.where(file).stat().st_size)
                file.deletions.append(Deletion(line, len(file.chunks)))
                with self.beside(file).open("ab") as out:
                    out.write(self.shape.record(line))
        return number

    def rewrite_deletions(self, file: DatabaseFile) -> None:
        """Its deletion file is written anew, the newest record first, as a database may do it."""
        file.deletions.reverse()
        self._write_deletions(file)

    def mend_deletions(self, file: DatabaseFile) -> None:
        """What became of its deletion file on disk is put right, from what is in mind."""
        self.beside(file).unlink(missing_ok=True)
        self._write_deletions(file)

    def _write_deletions(self, file: DatabaseFile) -> None:
        lines = (self.shape.record(each.line) for each in file.deletions)
        self.beside(file).write_bytes(b"".join(lines))

    def restart(self) -> None:
        for file in self.opened():
            self.close(file)
        self.flushed, self.versions = {}, {}
        for file in self.files:
            before = self.versions.get(file.partition, 0)
            self.versions[file.partition] = max(before, file.name[1])
            for series, time in file.keys:
                key = file.partition, self.shape.lane(series)
                self.flushed[key] = max(self.flushed.get(key, -1), time)

    # -- compactions and TTL ---------------------------------------------------------------

    def inner(self, partition: int, late: bool, at: int = 0, count: int = 9) -> None:
        """Merge neighbours of one kind into one file."""
        sources = self.closed(late, partition)[at : at + count]
        if len(sources) < 2:
            return
        pick: Callable[[Iterable[int]], int] = max if late else min
        name = (
            int(late),
            pick(each.name[1] for each in sources),
            pick(each.name[2] for each in sources),
            max(each.name[3] for each in sources) + 1,
            max(each.name[4] for each in sources),
        )
        self._replace(sources, [(name, self._merged(sources))])

    def cross(self, partition: int, count: int = 9) -> None:
        """Merge late files into those in order that they overlap."""
        late, ordered = self.closed(True, partition)[:count], self.closed(False, partition)
        opened = [f for f in self.opened() if not f.late and f.partition == partition]
        clear = [
            each
            for at, each in enumerate(late)
            if not any(one.overlaps(o) for one in late[: at + 1] for o in opened)
        ]
        if not clear or not ordered:
            return
        targets = self._targets(partition, clear, ordered, opened)
        if targets is None:
            return
        points = self._merged([*targets, *clear])
        products = []
        for at, file in enumerate(targets):
            mine = {
                key: value
                for key, value in points.items()
                if at == len(targets) - 1
                or ((span := file.span(self.shape.lane(key[0]))) is not None and key[1] <= span[1])
            }
            points = {key: value for key, value in points.items() if key not in mine}
            products.append(((*file.name[:4], file.name[4] + 1), mine))
        self._replace([*targets, *clear], products)

    def _targets(
        self,
        partition: int,
        late: Sequence[DatabaseFile],
        ordered: Sequence[DatabaseFile],
        opened: Sequence[DatabaseFile],
    ) -> list[DatabaseFile] | None:
        """The files in order that late ones go into; times behind the last go to the next one."""
        found = [each for each in ordered if any(each.overlaps(one) for one in late)]
        for lane in self.shape.lanes:
            top = max((span[1] for each in late if (span := each.span(lane))), default=None)
            if top is None or any((s := each.span(lane)) and s[1] >= top for each in found):
                continue
            behind = [each for each in ordered if (s := each.span(lane)) and s[1] >= top]
            if behind:
                nearest = min(behind, key=lambda each: (each.span(lane) or (0, 0))[1])
                found += [nearest] if nearest not in found else []
            elif (
                any(each.span(lane) for each in opened)
                or self.flushed.get((partition, lane), -1) < top
            ):
                return None
        return sorted(found, key=lambda each: each.name) or [ordered[-1]]

    def expire(self, floor: int, *, drop: bool = True) -> None:
        """Raise the TTL; files of which every time is below it go, each by itself."""
        self.floor = max(self.floor, floor)
        for file in self.closed() if drop else ():
            if max(time for _, time in file.keys) < self.floor:
                self._remove(file)

    def _merged(self, sources: Iterable[DatabaseFile]) -> Points:
        found: Points = {}
        for each in sorted(sources, key=lambda each: each.name):
            found.update(each.points)
        return {key: value for key, value in found.items() if key[1] >= self.floor}

    def _replace(
        self, sources: Sequence[DatabaseFile], products: Iterable[tuple[Name, Points]]
    ) -> None:
        """As a database does: the products are there before what they were made of goes."""
        partition, home = sources[0].partition, sources[0].home
        made = [
            DatabaseFile(partition, name, home, self.shape, [points])
            for name, points in products
            if points
        ]
        for each in made:
            self.files.append(each)
            self._store(each)
        for each in sources:
            self._remove(each)

    # -- operators -------------------------------------------------------------------------

    def move(self, file: DatabaseFile, home: int) -> None:
        """Another data directory, as tiers do."""
        before = self.where(file)
        file.home = home
        self._carry(file, before)

    def rename(self, file: DatabaseFile, name: Name) -> None:
        """Another name, by hand."""
        before = self.where(file)
        file.name = name
        self._carry(file, before)

    def _carry(self, file: DatabaseFile, before: Path) -> None:
        after = self.where(file)
        after.parent.mkdir(parents=True, exist_ok=True)
        for suffix in self._suffixes:
            here = before.with_name(before.name + suffix)
            if here.exists():
                shutil.move(here, after.with_name(after.name + suffix))

    def remove(self, files: Iterable[DatabaseFile]) -> None:
        """Closed files go, with what belongs to them."""
        for each in list(files):
            self._remove(each)

    def notice_freed(self) -> list[DatabaseFile]:
        """Closed files that are not there any more, as a database sees at its next start."""
        gone = [each for each in self.closed() if not self.where(each).exists()]
        self.files = [each for each in self.files if each not in gone]
        return gone

    def backup(self) -> EdgeDatabase:
        """A copy of all that it has; contents are one with this one's."""
        kept = copy.copy(self)
        kept.files = copy.deepcopy(self.files)
        kept.flushed, kept.versions = dict(self.flushed), dict(self.versions)
        kept.log = dict(self.log)
        return kept

    def restore(self, kept: EdgeDatabase) -> None:
        """Have what a copy has. What was open in it is closed; what was in memory is lost."""
        self.remove(self.files)
        self.files = copy.deepcopy(kept.files)
        self.floor, self.clock = kept.floor, max(self.clock, kept.clock)
        for file in self.files:
            file.memory = {}
            self._store(file)
            if file.deletions:
                self._write_deletions(file)
        self.restart()

    # -- disk ------------------------------------------------------------------------------

    def _store(self, file: DatabaseFile) -> None:
        """Bring a file on disk to what it is: the same inode while it grows."""
        devices = [self.shape.laid_out(chunk) for chunk in file.chunks]
        content, offsets = flushed(
            devices,
            closed=not file.open,
            aligned=[self.shape.device(SERIES[0])] if self.shape.aligned else (),
            types=dict.fromkeys((*SERIES, "s"), "INT64"),
        )
        where = self.where(file)
        where.parent.mkdir(parents=True, exist_ok=True)
        known = where.stat().st_size if where.exists() else 0
        with where.open("ab") as out:
            out.write(content[known:])
        if file.open:
            return
        self.resource(file).write_bytes(b"resource")
        file.md5 = hashlib.md5(content).hexdigest()
        self.contents[file.md5] = [
            (
                offset,
                {
                    (series, time): value
                    for (series, time), value in chunk.items()
                    if self.shape.device(series) == device
                },
            )
            for chunk, there in zip(file.chunks, offsets, strict=True)
            for device, offset in there.items()
        ]

    def resource(self, file: DatabaseFile) -> Path:
        """What is written beside it when it is closed."""
        where = self.where(file)
        return where.with_name(f"{where.name}.resource")

    def beside(self, file: DatabaseFile) -> Path:
        """Its deletion file."""
        where = self.where(file)
        return where.with_name(f"{where.name}.{self.shape.form}")

    @property
    def _suffixes(self) -> tuple[str, ...]:
        return "", ".resource", f".{self.shape.form}"

    def _remove(self, file: DatabaseFile) -> None:
        self.files.remove(file)
        where = self.where(file)
        for suffix in self._suffixes:
            where.with_name(where.name + suffix).unlink(missing_ok=True)
