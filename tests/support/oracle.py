"""An edge whose database is not ours, a centre, real rounds between them, and a judge.

The judge shares no belief with the product. What readers should get is what the database answers;
what the centre gives is worked out here, from the committed rows (names, looks, states, deletion
files) and from contents that are known by their MD5, by the rules that the documentation states.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from receiver.config import (
    DeletesConfig,
    LimitsConfig,
    ListenConfig,
    LoadConfig,
    MetadataConfig,
    ProofsConfig,
    ReceiverConfig,
)
from receiver.metadata.state.deletion_rows import DeletionsRow
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.operator.edges.senders import accept_sender
from receiver.spark.source.inferring import columns_of, list_sources, plan_of, read_tail_of
from receiver.spark.source.read_plans.slicing import plan
from receiver.spark.source.read_plans.source_options import parse_options
from receiver.spark.source.slice_reader import read_slices
from receiver.web.app import close, create_app, site_of
from sender.round.freed_files.freeing import FreeReport
from sender.round.round_words.round_report import RoundReport
from sender.select.data_dirs import MARKER, mark
from tests.support.edge import Edge
from tests.support.edge_database import EdgeDatabase
from tests.support.edge_shapes import (
    PLAIN,
    DeletionLine,
    Key,
    Points,
    Shape,
    in_mind,
)
from tests.support.oracle_host import Host, InProcess, Killable
from tests.support.proving import in_this_process
from tests.support.web import running

NOW = 2**63 - 1
"""The last look of what its sender still has."""
T = TypeVar("T")
_IN_SIGHT = (FileState.LIVE, FileState.RETIRED)


# -- what the centre gives -----------------------------------------------------------------------


class Standing(NamedTuple):
    """What ranks a file: as the sender names it, and the looks that had it."""

    name: tuple[int, ...]
    first: int
    closed: int
    last: int


class Record(NamedTuple):
    """A deletion as the centre has it, with the last look before it can have been made."""

    line: DeletionLine
    floor: int


def standing(row: FileRow) -> Standing:
    kind, name = row.path.split("/", 1)[0], row.path.rsplit("/", 1)[1]
    # What was merged for good is called as its highest input, with a tag behind.
    creation, version, inner, cross = name.removesuffix(".tsfile").partition(".")[0].split("-")
    ranked = (int(kind == "unsequence"), int(version), int(creation), int(inner), int(cross))
    return Standing(ranked, row.first_look, row.closed_look, row.last_look or NOW)


def is_above(one: Standing, other: Standing) -> bool:
    """Two that one look had together rank as the database ranks them; else the later one."""
    if one.first <= other.last and other.first <= one.last:
        return (one.name, one.first) > (other.name, other.first)
    return one.first > other.last


def topmost(several: Sequence[T], above: Callable[[T, T], bool]) -> list[T]:
    """Of some in whose order there is a circle, those that none of the others stands above."""

    def reaching(one: int) -> set[int]:
        found: set[int] = set()
        more = {one}
        while more:
            found |= more
            more = {
                other
                for other in range(len(several))
                if other not in found and any(above(several[other], several[o]) for o in more)
            }
        return found

    least = min(map(reaching, range(len(several))), key=len)
    return [each for number, each in enumerate(several) if number in least]


def records(row: DeletionsRow, shape: Shape) -> list[Record]:
    found, begin = [], 0
    for segment in row.segments:
        lines = shape.lines(row.content[begin : segment.end])
        found += [Record(line, segment.floor) for line in lines]
        begin = segment.end
    return found


@dataclass
class CentreView:
    """What is committed of one sender, as the judge sees it.

    Attributes:
        rows: all of its files.
        deletions: physical name (None: not loaded) and record.
        contents: of every MD5.
    """

    rows: Sequence[FileRow]
    deletions: Sequence[tuple[str | None, Record]]
    contents: dict[str, list[tuple[int, Points]]]

    @classmethod
    def of(cls, host: Host, senders: Iterable[str], database: EdgeDatabase) -> CentreView:
        with host.reading() as state:
            rows = [row for row in state.files.values() if row.sender in senders]
            noted = [row for each in senders for row in state.deletion_table.of_sender(each)]
        rows, noted = (
            [row for row in every if row.path.split("/")[1] == database.group]
            for every in (rows, noted)
        )
        known = [
            (each.physical, record) for each in noted for record in records(each, database.shape)
        ]
        return cls(rows, known, database.contents)

    def learn(self, made: Mapping[str, Sequence[str]]) -> None:
        """Files that were merged for good have what those gave that they are made of.

        Args:
            made: physical name of one, and of what it is made of; as long as nothing was deleted
                since then.
        """
        rows = {row.physical: row for row in self.rows}
        for physical, inputs in made.items():
            row = rows[physical]
            if row.md5 not in self.contents:
                self.contents[row.md5] = [(0, self._together([rows[each] for each in inputs]))]

    @property
    def visible(self) -> list[FileRow]:
        return [row for row in self.rows if row.state in _IN_SIGHT]

    @property
    def seen(self) -> set[int]:
        """Numbers of the deletions that the centre knows."""
        return {record.line.number for _, record in self.deletions}

    def points(self, row: FileRow) -> Points:
        """What a file gives by itself, and under deletions of others."""
        stands = standing(row)
        own = [record.line for owner, record in self.deletions if owner == row.physical]
        others = [
            record.line
            for owner, record in self.deletions
            if owner != row.physical and record.floor >= stands.closed
        ]
        found: Points = {}
        for offset, chunk in self.contents[row.md5]:
            for key, value in chunk.items():
                hidden = any(each.hides(key) for each in others) or any(
                    each.hides(key) and offset < each.offset for each in own
                )
                if not hidden:
                    found[key] = value
        return found

    def of_others(self, sender: str, *, proved: bool = True) -> set[tuple[Key, int]]:
        """Points of files that other senders listed, and of which it never had all.

        Args:
            sender: who took over from them.
            proved: whether what could be proved was; else of all files.
        """
        mine = (row for row in self.rows if row.sender == sender)
        had = {key for row in mine for key in self.points(row)}
        rows = (row for row in self.visible if row.sender != sender)
        found = [self.points(row) for row in rows]
        return {
            point
            for points in found
            if not (proved and had.issuperset(points))
            for point in points.items()
        }

    def answer(self, *, superseded: bool = False) -> Points:
        """What readers get; also, what they would if nothing had been proved."""
        shown = (*_IN_SIGHT, FileState.SUPERSEDED) if superseded else _IN_SIGHT
        return self._together([row for row in self.rows if row.state in shown])

    def _together(self, rows: Iterable[FileRow]) -> Points:
        candidates: dict[Key, list[tuple[FileRow, int]]] = {}
        for row in rows:
            for key, value in self.points(row).items():
                candidates.setdefault(key, []).append((row, value))
        return {key: self._highest(several) for key, several in candidates.items()}

    def _highest(self, several: list[tuple[FileRow, int]]) -> int:
        ranked = [(standing(row), row.created, value) for row, value in several]
        for stands, _, value in ranked:
            if all(o is stands or is_above(stands, o) for o, _, _ in ranked):
                return value
        ranked = topmost(ranked, lambda one, other: is_above(one[0], other[0]))
        return max(ranked, key=lambda each: (each[0].last, each[0].name))[2]  # no order

    def is_given_above(self, row: FileRow) -> bool:
        """Whether every point of a retired file is given above it."""
        above = [each for each in self.visible if is_above(standing(each), standing(row))]
        given = set().union(*(self.points(each) for each in above)) if above else set()
        return set(self.points(row)) <= given


def rows_read(
    schema_dir: Path, as_of: int | str | None = None, **given: str
) -> Iterator[dict[str, Any]]:
    """The rows that a reader of a receiver's catalogue gets, now or as of a commit or a time."""
    if as_of is not None:
        given["asOf"] = str(as_of)
    options = parse_options({"form": "long", "catalog": str(schema_dir), **given})
    query = plan_of(options, columns_of(options))
    sources = list_sources(options)
    span, picker = query.selection.span, query.picker()
    parts = plan(sources, span, 1 << 20, picker, read_tail_of, merge=options.merge)
    for part in parts:
        for each in read_slices(part, query):
            yield from each.to_pylist()


def points_read(host: Host, shape: Shape, **given: str) -> Points:
    """What a reader of a receiver gets, with some options.

    Raises:
        AssertionError: a time of a series is given twice.
    """
    with host.reading() as state:
        if not any(row.state in _IN_SIGHT for row in state.files.values()):
            return {}
    found: Points = {}
    for row in rows_read(host.config.schema_dir, **given):
        if not shape.has(row["device"]):
            continue
        key = shape.series(row["device"], row["measurement"]), in_mind(row["time"])
        assert key not in found, f"{key} is given twice"
        found[key] = row["value_long"]
    return found


# -- the world -----------------------------------------------------------------------------------


@dataclass
class EdgeBackup:
    """A copy of an edge: of its database, and of what its sender remembers."""

    database: EdgeDatabase
    memory: Path


class Oracle:
    """An edge with two data directories, its database, and a receiver that serves it."""

    def __init__(
        self, root: Path, mode: str, host: Host, shape: Shape = PLAIN, edge: Edge | None = None
    ) -> None:
        """Begin with nothing.

        Args:
            root: for what it has on disk.
            mode: what the edge's word may take away.
            host: the receiver.
            shape: of the database.
            edge: if it shares one with another database.
        """
        self.host, self.mode, self.root = host, mode, root
        self.edge = edge or an_edge(root / "edge", host.url, mode)
        self.senders = [self.edge.uuid]
        self.database = EdgeDatabase(shape, self.edge.config.data_dirs)
        self.aside = root / "aside"

    def round(self) -> RoundReport:
        return self.edge.round()

    def free(self, patterns: Sequence[str]) -> FreeReport:
        return self.edge.free(patterns=tuple(patterns))

    # -- copies ----------------------------------------------------------------------------

    def backup(self, name: str = "backup") -> EdgeBackup:
        """A copy of the edge: its database, and what the sender remembers."""
        where = self.aside.with_name(name)
        shutil.rmtree(where, ignore_errors=True)
        for place in self._remembered():
            if place.exists():
                shutil.copytree(place, where / place.relative_to(self.edge.root))
        return EdgeBackup(self.database.backup(), where)

    def restore(self, kept: EdgeBackup, *, lost: Collection[str] = (), accept: bool = True) -> None:
        """The edge is what its copy was; an operator of the centre says so.

        Args:
            kept: the copy.
            lost: what of the sender's memory is not in it, as patterns.
            accept: whether the operator does.
        """
        self.database.restore(kept.database)
        for place in self._remembered():
            shutil.rmtree(place, ignore_errors=True)
            source = kept.memory / place.relative_to(self.edge.root)
            if source.exists():
                shutil.copytree(source, place)
        for pattern in lost:
            for found in self.edge.root.glob(pattern):
                found.unlink()
        if accept:
            assert isinstance(self.host, InProcess)
            accept_sender(self.host.node.engine, self.edge.uuid)

    def _remembered(self) -> list[Path]:
        return [self.edge.schema, *(each / "sync-sender" for each in self.edge.config.data_dirs)]

    def view(self) -> CentreView:
        return CentreView.of(self.host, self.senders, self.database)

    def answer(self) -> Points:
        """What readers should get of what is committed, as the judge works it out."""
        return self.view().answer()

    def read(self, **given: str) -> Points:
        """What a reader of the product gets, with some options.

        Raises:
            AssertionError: a time of a series is given twice.
        """
        return points_read(self.host, self.database.shape, **given)

    # -- other boxes -----------------------------------------------------------------------

    def clone(self) -> Edge:
        """A copy of the whole box, as it is now."""
        root = self.root / f"clone{len(list(self.root.glob('clone*')))}"
        shutil.copytree(self.edge.root, root)
        made = copy.copy(self.edge)
        made.root, made.data, made.schema = root, root / "data", root / "schema"
        homes = tuple(
            root / each.relative_to(self.edge.root) for each in self.edge.config.data_dirs
        )
        made.with_settings(schema_dir=made.schema, data_dirs=homes)
        return made

    def exchange(self) -> str:
        """Another box takes over the database, under a uuid of its own; returns the old one's."""
        old = self.edge
        self.edge = an_edge(self.root / f"edge{len(self.senders)}", self.host.url, self.mode)
        for ours, theirs in zip(old.config.data_dirs, self.edge.config.data_dirs, strict=True):
            for kind in ("sequence", "unsequence"):
                if (ours / kind).exists():
                    shutil.copytree(ours / kind, theirs / kind, dirs_exist_ok=True)
        self.database.homes = list(self.edge.config.data_dirs)
        self.senders.append(self.edge.uuid)
        return old.uuid

    # -- what a look does not reach --------------------------------------------------------

    @contextlib.contextmanager
    def linked(self, late: bool, home: int = 0) -> Iterator[None]:
        """A kind of the storage group lies elsewhere, a link in its place."""
        kind = ("sequence", "unsequence")[late]
        where = self.edge.config.data_dirs[home] / kind / self.database.group
        where.mkdir(parents=True, exist_ok=True)
        aside = self.aside.with_name(f"aside{int(late)}{home}")
        where.rename(aside)
        where.symlink_to(aside)
        try:
            yield
        finally:
            where.unlink()
            aside.rename(where)

    @contextlib.contextmanager
    def unmarked(self, home: int) -> Iterator[None]:
        """A data directory has lost its marker, as an empty mount point has none."""
        marker = self.edge.config.data_dirs[home] / MARKER
        marker.rename(self.aside)
        try:
            yield
        finally:
            self.aside.rename(marker)

    @contextlib.contextmanager
    def delayed(self, paths: Sequence[Path]) -> Iterator[None]:
        """Files are being changed just now, so they are not sent."""
        marks = [each.with_name(f"{each.name}.settle") for each in paths]
        for each in marks:
            each.touch()
        try:
            yield
        finally:
            for each in marks:
                each.unlink()


def an_edge(root: Path, url: str, mode: str) -> Edge:
    """One with two data directories, and without a guard of its own."""
    edge = Edge(root, url, propagate_deletes=mode, max_delete_fraction=1.0, guard_from_files=0)
    second = root / "second"
    second.mkdir(exist_ok=True)
    mark(second, edge.uuid)
    edge.with_settings(data_dirs=(edge.data, second))
    return edge


def receiver_config(
    root: Path, deletes: DeletesConfig | None = None, *, keeps: bool = True
) -> ReceiverConfig:
    """Of the receiver of an oracle, which has a data directory; it may keep nothing deleted.

    It proves when a history says so, and never meanwhile, however long a step takes.
    """
    kept = (
        {}
        if keeps
        else {"metadata": MetadataConfig(history=1e-6), "load": LoadConfig(keep_deleted=0.0)}
    )
    config = ReceiverConfig(
        **kept,  # type: ignore[arg-type]
        schema_dir=root / "centre" / "schema",
        data_dirs=(root / "centre" / "data",),
        listen=ListenConfig(host="127.0.0.1", port=0),
        limits=LimitsConfig(min_free_bytes=0),
        deletes=deletes or DeletesConfig(max_fraction=1.0),
        proofs=ProofsConfig(every=86_400.0),
    )
    config.data_dirs[0].mkdir(parents=True)
    return config


@contextlib.contextmanager
def oracle(root: Path, mode: str = "replaced", shape: Shape = PLAIN) -> Iterator[Oracle]:
    """A receiver in this process, served over HTTP, and an edge."""
    with receiver_at(root) as host:
        yield Oracle(root, mode, host, shape)


@contextlib.contextmanager
def receiver_at(
    root: Path, deletes: DeletesConfig | None = None, *, keeps: bool = True
) -> Iterator[InProcess]:
    """A receiver in this process, served over HTTP."""
    app = create_app(receiver_config(root, deletes, keeps=keeps))
    try:
        site = site_of(app)
        in_this_process(site.node)
        if not keeps:
            site.node.load.reaper.close()  # only when it is told to, not while somebody reads
        with running(app, gate=site.gate) as server:
            host, port = server.addresses[0]
            yield InProcess(site.node, f"http://{host}:{port}")
            site.polls.close()
    finally:
        close(app)


@contextlib.contextmanager
def killable(root: Path, *, keeps: bool = True) -> Iterator[Killable]:
    """A receiver that can die; it may keep nothing that is deleted."""
    host = Killable(receiver_config(root, keeps=keeps))
    assert host.start()
    try:
        yield host
    finally:
        host.kill()


def difference(given: Points, wanted: Points) -> dict[Key, tuple[int | None, int | None]]:
    """(given, wanted) where they differ."""
    return {
        key: (given.get(key), wanted.get(key))
        for key in sorted(given.keys() | wanted.keys())
        if given.get(key) != wanted.get(key)
    }
