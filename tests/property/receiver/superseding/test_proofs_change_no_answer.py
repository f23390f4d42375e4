"""Random lives of an edge at a real node: whatever is proved, and whenever, no answer changes.

The measure is the answer that the same files would give if nothing had ever been proved, over the
points as they were written.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from common.names import FilePath
from receiver.metadata.model import records
from receiver.metadata.model.ranks import highest, name_rank, stands_above
from receiver.metadata.state.table_rows import FileRow, FileState
from tests.support import tiers
from tests.support.node_world import World
from tests.support.proving import Site, given, in_this_process

SERIES = st.sampled_from("ab")
TIMES = st.integers(1, 8)
FILES = st.lists(st.tuples(SERIES, TIMES), min_size=1, max_size=6, unique=True)
WHICH = st.integers(0, 9)
Key = tuple[str, int]


class ProvedLives(RuleBasedStateMachine):
    """Files come, are compacted, end, rot and return; proofs run in between."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tsferry-proofs-"))
        self.node = World(self.root).still_node()
        in_this_process(self.node)
        self.site = Site(self.node)
        self.writes = self.version = 0
        self.listed: dict[str, dict[str, dict[int, int]]] = {}
        self.opened: list[tuple[str, int]] = []

    def teardown(self) -> None:
        self.node.close()
        shutil.rmtree(self.root)

    # -- the edge ------------------------------------------------------------------------------

    @initialize(points=FILES)
    def begin(self, points: list[Key]) -> None:
        self.flush("sequence", points)

    @rule(kind=st.sampled_from(["sequence", "unsequence"]), points=FILES)
    def flush(self, kind: str, points: list[Key]) -> None:
        self.version += 1
        self._load(_path(kind, self.version), self._written(points))

    @rule(kind=st.sampled_from(["sequence", "unsequence"]))
    def open(self, kind: str) -> None:
        """A look sees a file that is not closed."""
        self.version += 1
        self.opened.append((_path(kind, self.version), self.site.look))

    @precondition(lambda self: self.opened)
    @rule(points=FILES, which=WHICH)
    def close(self, points: list[Key], which: int) -> None:
        path, since = self.opened.pop(which % len(self.opened))
        self._load(path, self._written(points), since=since)

    @precondition(lambda self: len(self.listed) > 1)
    @rule(which=WHICH, count=st.integers(2, 4), lost=st.tuples(SERIES, TIMES) | st.none())
    def compact(self, which: int, count: int, lost: Key | None) -> None:
        """Files become one; of some points the edge had seen a deletion that no look saw."""
        paths = sorted(self.listed, key=_rank)
        at = which % (len(paths) - 1)
        sources = paths[at : at + count]
        merged: dict[str, dict[int, int]] = {}
        for path in sources:
            for series, each in self.listed.pop(path).items():
                merged.setdefault(series, {}).update(each)
        if lost is not None:
            merged.get(lost[0], {}).pop(lost[1], None)
        merged = {series: each for series, each in merged.items() if each}
        kind = sources[0].partition("/")[0]
        lowest = min(sources, key=lambda each: _rank(each)[1])
        cross = 1 + max(_rank(each)[4] for each in sources)
        product = _path(kind, _rank(lowest)[1], cross)
        if merged and product not in self.listed:
            self.listed[product] = merged
            self.site.round({product: merged}, sources)
        else:
            self.site.round({}, sources)

    @precondition(lambda self: self.listed)
    @rule(which=WHICH)
    def free(self, which: int) -> None:
        path = self._chosen(which)
        del self.listed[path]
        self.site.round({}, [path])

    @precondition(lambda self: self.listed)
    @rule(which=WHICH, series=SERIES, first=TIMES, length=st.integers(0, 3))
    def delete(self, which: int, series: str, first: int, length: int) -> None:
        """A deletion holds in its own file and in all that were closed before it was seen."""
        self.site.note(self._chosen(which), series, first, first + length, floor=self.site.look)

    def _chosen(self, which: int) -> str:
        return sorted(self.listed)[which % len(self.listed)]

    def _written(self, points: list[Key]) -> dict[str, dict[int, int]]:
        made: dict[str, dict[int, int]] = {}
        for series, time in points:
            self.writes += 1
            made.setdefault(series, {})[time] = self.writes
        return made

    def _load(self, path: str, points: dict[str, dict[int, int]], since: int | None = None) -> None:
        self.listed[path] = points
        self.site.round({path: points}, open_since={} if since is None else {path: since})

    # -- the centre ----------------------------------------------------------------------------

    @rule(which=WHICH)
    def rot(self, which: int) -> None:
        self._commit(which, FileState.LIVE, FileState.RETIRED,
                     make=lambda each: records.FileQuarantined(each, "rot"))  # fmt: skip

    @rule(which=WHICH)
    def heal(self, which: int) -> None:
        self._commit(which, FileState.QUARANTINED, make=records.FileRestored)

    @rule(which=WHICH)
    def drop(self, which: int) -> None:
        self._commit(which, FileState.RETIRED, FileState.SUPERSEDED,
                     make=lambda each: records.FileDeleted(each, "operator"))  # fmt: skip

    def _commit(self, which: int, *states: FileState, make) -> None:  # type: ignore[no-untyped-def]
        rows = self._rows(*states)
        if rows:
            self.node.engine.commit([make(rows[which % len(rows)].physical)])

    @rule()
    def sweep(self) -> None:
        before = self.site.answer()
        self.node.prover.run_once()
        assert self.site.answer() == before
        self._nothing_is_left_to_prove()

    @invariant()
    def answers_are_as_if_nothing_was_proved(self) -> None:
        assert self.site.answer() == self.site.answer(superseded=True)

    def _nothing_is_left_to_prove(self) -> None:
        visible = self._rows(FileState.LIVE, FileState.RETIRED)
        giving = {row.physical: self._given(row) for row in visible}
        for row in visible:
            if row.state is not FileState.RETIRED:
                continue
            stays = False
            for key in giving[row.physical]:
                ranks = [each.rank for each in visible if key in giving[each.physical]]
                top = highest(ranks)
                ordered = all(each == top or stands_above(top, each) for each in ranks)
                stays |= not ordered or top == row.rank
            assert stays, f"{row.physical} is given by others"

    def _given(self, row: FileRow) -> dict[Key, int]:
        return given(row, self.site.points[row.physical], self.site.deleted)

    def _rows(self, *states: FileState) -> list[FileRow]:
        with self.node.engine.reading() as state:
            found = [row for row in state.files.values() if row.state in states]
        return sorted(found, key=lambda row: row.physical)


def _path(kind: str, version: int, cross: int = 0) -> str:
    return f"{kind}/root.sg/0/0/{version}-{version}-0-{cross}.tsfile"


def _rank(path: str) -> tuple[int, int, int, int, int]:
    found = name_rank(FilePath.parse(path))
    assert found is not None
    return found


TestProvedLives = ProvedLives.TestCase
TestProvedLives.settings = settings(
    max_examples=tiers.examples(30), stateful_step_count=25, deadline=None
)
