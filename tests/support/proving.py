"""An edge whose files a test knows by their points, and what a receiver's answer is over them.

The answer is found from the points that were written, never from bytes: the proofs are held against
something that shares no reading of files with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from common.wire import Propagate
from receiver.metadata.model import records
from receiver.metadata.model.ranks import highest
from receiver.metadata.state.state import State
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.node import Node
from receiver.superseding.asking import PartitionAnswer, PartitionAsked
from receiver.superseding.partition_proof import ReadBytes, prove
from tests.support.node_world import A, Edge, plan_entry
from tests.support.tsfile_bytes import build

Points = Mapping[str, Mapping[int, int]]
"""Series -> time -> value, all of one device."""
DEVICE = "root.sg.d1"


class SameProcess:
    """Reads for proofs in this process."""

    def __init__(self) -> None:
        self.asked: list[PartitionAsked] = []
        self.read = ReadBytes()

    def ask(self, asked: PartitionAsked, stopped: Callable[[], bool]) -> PartitionAnswer:
        del stopped
        self.asked.append(asked)
        return prove(asked, self.read)

    def close(self) -> None:
        pass

    @property
    def judged(self) -> list[str]:
        """Physical paths of all candidates that were asked about."""
        return [each.physical for one in self.asked for each in one.files if each.candidate]


def in_this_process(node: Node) -> SameProcess:
    """Have the prover of a node read in this process."""
    node.prover._process = SameProcess()  # type: ignore[assignment]
    return node.prover._process  # type: ignore[return-value]


def content(points: Points, mark: str = "") -> bytes:
    """A TsFile of the points; with another mark it has other bytes."""
    properties = {"encryptLevel": "0", "encryptType": "UNENCRYPTED", "encryptKey": None}
    devices = {DEVICE: {name: sorted(each.items()) for name, each in points.items()}}
    return build(devices, properties={**properties, "mark": mark})


def deletion(series: str, first: int, last: int) -> bytes:
    """A record of a text deletion file that holds in all chunks of its file."""
    return f"DELETION,{DEVICE}.{series},{2**63 - 1},{first},{last}\n".encode()


@dataclass
class Site:
    """An edge at a node: files come and go by looks, and the test remembers their points."""

    group: ClassVar[str] = "root.sg"
    """As directories are named."""
    form: ClassVar[str] = "mods"
    """Of deletion files."""

    node: Node
    uuid: str = A
    look: int = 0
    marks: bool = True
    mode: Propagate = Propagate.REPLACED
    edge: Edge = field(init=False)
    points: dict[str, Points] = field(default_factory=dict)
    deleted: list[tuple[str | None, str, int, int, int]] = field(default_factory=list)
    """(physical, series, first, last, floor) of deletions that were told."""

    def __post_init__(self) -> None:
        self.edge = Edge(self.node, self.uuid)

    def again(self, node: Node) -> None:
        """The node was started anew."""
        self.node = self.edge.node = node

    def round(
        self,
        files: Mapping[str, Points],
        gone: Iterable[str] = (),
        *,
        open_since: Mapping[str, int] | None = None,
        **more: Any,
    ) -> None:
        """One look: files that are new in it, and those that the look before it had still.

        `open_since` names the first look that had one of the files, if that was an earlier one.
        """
        gone, before = list(gone), self.look
        self.edge.check()
        with self.node.engine.reading() as state:
            self.look = max(self.look, state.newest) + 1
        bytes_of = {
            path: self.bytes_of(points, path if self.marks else "")
            for path, points in files.items()
        }
        task = self.edge.start(**{"propagate": self.mode} | more)
        self.edge.plan(task, [plan_entry(path, each) for path, each in bytes_of.items()])
        if gone:
            self.edge.deleted(task, gone)
        if bytes_of:
            self.edge.batch(task, bytes_of)
        looks = {path: ((open_since or {}).get(path, self.look), self.look) for path in bytes_of}
        self.edge.end(task, bytes_of, gone, looks=looks, last_looks=[before] * len(gone))
        self.edge.outcome(task)
        for path, points in files.items():
            self.points[self.row(path).physical] = points

    def note(self, path: str, series: str, first: int, last: int, *, floor: int) -> None:
        """Tell a deletion of a file, seen first now."""
        row = self.row(path)
        record = self.record(series, first, last)
        with self.node.engine.reading() as state:
            known = sum(len(each.content) for each in state.deletion_table.of_file(row.physical))
        self.node.engine.commit([
            records.DeletionsNoted(
                self.uuid, row.path, row.physical, self.form, known, record, floor
            )
        ])  # fmt: skip
        self.deleted.append((row.physical, series, first, last, floor))

    def bytes_of(self, points: Points, mark: str) -> bytes:
        """A file of the points; with another mark it has other bytes."""
        return content(points, mark)

    def record(self, series: str, first: int, last: int) -> bytes:
        """A record of a deletion file that holds in all of a file."""
        return deletion(series, first, last)

    def row(self, path: str) -> FileRow:
        """The newest file of a path."""
        with self.node.engine.reading() as state:
            found = [row for row in state.files.values() if path in row.paths]
        return max(found, key=lambda row: row.created)

    def state(self, path: str) -> FileState:
        return self.row(path).state

    def answer(self, *, superseded: bool = False) -> dict[tuple[str, int], int]:
        """What a reader is given; also, what it would be given if nothing had been proved."""
        with self.node.engine.reading() as state:
            return answer(state, self.points, self.deleted, superseded=superseded)


def given(row: FileRow, points: Points, deleted: Iterable[Any]) -> dict[tuple[str, int], int]:
    """What a file gives by itself."""
    hiding = [
        (series, first, last)
        for physical, series, first, last, floor in deleted
        if physical == row.physical or floor >= row.rank.closed
    ]
    return {
        (series, time): value
        for series, each in points.items()
        for time, value in each.items()
        if not any(name == series and first <= time <= last for name, first, last in hiding)
    }


def answer(
    state: State,
    points: Mapping[str, Points],
    deleted: Iterable[Any],
    *,
    superseded: bool = False,
) -> dict[tuple[str, int], int]:
    """What a reader is given over all visible files, and over the superseded too if told so."""
    deleted = list(deleted)
    giving: dict[tuple[str, int], dict[str, int]] = {}
    rows = {
        row.physical: row
        for row in state.files.values()
        if row.visible or (superseded and row.state is FileState.SUPERSEDED)
    }
    for physical, row in rows.items():
        for key, value in given(row, points[physical], deleted).items():
            giving.setdefault(key, {})[physical] = value
    return {
        key: each[highest([rows[physical].rank for physical in each]).physical]
        for key, each in giving.items()
    }
