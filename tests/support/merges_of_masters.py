"""Masters that merge what edges have freed, and let go of what they merged: `MergesOfMasters`.

The oracle knows the bytes of merged files, which of an edge's files each is made of, and on which
disks both lie. A file that was told to be loaded is where it is whole itself, or where a merged one
is that has become final; nothing here knows when a master may let its inputs go.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from hypothesis import strategies as st
from hypothesis.stateful import rule

from common.errors import TsferryError
from common.tsfile import read_tail
from common.tsfile.tail_digest import tail_digest
from receiver.load.upkeep.reaper import Reaper
from receiver.metadata.model import records
from receiver.metadata.model.ranks import LOWEST_LOOK
from receiver.metadata.state.table_rows import FileRow, FileState
from tests.support.masters_and_edges import GROUP, MASTER, NODE, MastersAndEdges
from tests.support.tsfile_bytes import build
from tests.support.two_masters import LEASE, OneOfTwo

__all__ = ["MergesOfMasters"]

_AHEAD = LOWEST_LOOK * 2
_ENDED = _AHEAD + 1_000_000
_MEANWHILE = ("reaper", "nodes down", "node", "burns", "an hour", "stand-by")


@dataclass
class _Merge:
    """What was made of some files.

    Attributes:
        physical: its name.
        content: its bytes.
        paths: of the files that it is made of.
        is_final: whether it has been tried to make it final, which may have come to be.
    """

    physical: str
    content: bytes
    paths: tuple[str, ...]
    is_final: bool = False


class MergesOfMasters(MastersAndEdges):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.freed: set[str] = set()
        self.merges: list[_Merge] = []

    @rule(at=MASTER, partition=st.integers(0, 1), group=GROUP)
    def edges_free_and_a_master_merges(self, at: int, partition: int, group: str) -> None:
        """What is safe; the merged file is final from then on."""
        self.edges_free_what_is_safe()
        self.a_master_merges(at, partition, group)
        self.a_master_makes_final(at)

    @rule(
        partition=st.integers(0, 1),
        group=GROUP,
        pressed=st.booleans(),
        meanwhile=st.lists(st.sampled_from(_MEANWHILE), max_size=3),
        node=NODE,
    )
    def inputs_go_behind_a_merge(
        self, partition: int, group: str, pressed: bool, meanwhile: list[str], node: int
    ) -> None:
        """Nodes hear of it while it goes on, or when all is over."""
        if self.is_turned_back:
            return
        self.there.parted.clear()
        self.somebody_leads()
        for _ in range(2):
            self.an_edge_sends(partition, group)
        self.all_go_on(2)
        self.an_edge_asks()
        self.edges_free_and_a_master_merges(self._leading(), partition, group)
        for each in meanwhile:
            self._happens_beside_a_merge(each, node, pressed)
        self.all_go_on(2)
        self.a_master_lets_go_of_inputs(self._leading(), pressed)
        self.all_go_on(1)

    def _leading(self) -> int:
        return next((at for at in range(2) if self.may_commit(self.there.masters[at])), 0)

    def _happens_beside_a_merge(self, what: str, node: int, pressed: bool) -> None:
        at = self._leading()
        if what == "reaper":
            self.a_master_lets_go_of_inputs(at, pressed)
        elif what == "nodes down":
            for each in self.there.nodes:
                each.stop()
        elif what == "node" and self.there.nodes[node].is_up:
            self.there.nodes[node].stop()
        elif what == "burns":
            self.the_disks_of_a_node_burn(node)
        elif what == "an hour":
            for _ in range(200):
                self.there.pass_time(LEASE)
            self.all_go_on(1)
        elif what == "stand-by" and self.there.masters[at].is_alive:
            self.there.masters[at].die()
            self.somebody_leads()
            self.all_go_on(1)

    @rule()
    def edges_free_what_is_safe(self) -> None:
        """They say so at their next look."""
        for path in sorted(self.safe - self.deleted - self.freed):
            self._ask(lambda master, path=path: self._retire(master, path))  # type: ignore[misc]

    def _retire(self, master: OneOfTwo, path: str) -> None:
        row = self._row(master, path)
        if row is not None and row.state is FileState.LIVE:
            master.engine.commit([records.FileRetired(row.physical, _ENDED)])
            self.freed.add(path)

    @rule(at=MASTER, partition=st.integers(0, 1), group=GROUP)
    def a_master_merges(self, at: int, partition: int, group: str) -> None:
        """All that its edge has freed there, and the merged file stands for it.

        Unless something of it has not come yet: that would be refused, since it is between them.
        """
        master = self.there.masters[at]
        inside = {path for merge in self.merges for path in merge.paths}
        below = f"sequence/{group}/0/{partition}/"
        coming = self.contents.keys() - self.loaded - self.deleted
        if any(each.startswith(below) for each in coming):
            return
        paths = sorted(each for each in self.freed - inside if each.startswith(below))
        rows = [self._row(master, each) for each in paths] if self.may_commit(master) else []
        found = [row for row in rows if row is not None]
        if len(found) < 2 or len(found) < len(paths):
            return
        merge = self._made_of(paths, group, f"{below}merged-{len(self.merges) + 1}-1.tsfile")
        self.merges.append(merge)
        place = master.world.data / merge.physical
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(merge.content)
        op = self._compaction(merge, [each.physical for each in found], group, master)
        try:
            master.engine.commit([op])
        except TsferryError:
            place.unlink()

    def _made_of(self, paths: Sequence[str], group: str, physical: str) -> _Merge:
        numbers = sorted(int(Path(each).name.partition("-")[0]) for each in paths)
        content = build({f"{group}.d1": {"s1": [(each, each) for each in numbers]}})
        return _Merge(physical, content, tuple(paths))

    def _compaction(
        self, merge: _Merge, inputs: list[str], group: str, master: OneOfTwo
    ) -> records.FilesCompacted:
        tail = read_tail(merge.content)
        output = records.CompactionOutput(
            merge.physical,
            len(merge.content),
            hashlib.md5(merge.content).hexdigest(),
            4,
            [records.DeviceRange(it.name_in(group), it.start, it.end) for it in tail.devices],
            tail.first_time,
            tail.last_time,
            tail.series_count,
            tail.point_count,
            str(master.world.data),
        )
        ident, newest = self.merges.index(merge) + 1, master.engine.newest_commit
        return records.FilesCompacted(ident, newest, sorted(inputs), [output])

    @rule(at=MASTER)
    def a_master_makes_final(self, at: int) -> None:
        """What it has merged, and finds on its disk as it was made."""
        master = self.there.masters[at]
        for merge in self.merges if self.may_commit(master) else ():
            ident, place = self.merges.index(merge) + 1, master.world.data / merge.physical
            with master.engine.reading() as state:
                row = state.compacted_table.rows.get(ident)
            if row is None or row.final or row.dissolved:
                continue
            if not place.is_file() or place.read_bytes() != merge.content:
                op: records.Op = records.CompactionDissolved(ident, "it is not here")
            else:
                tail = tail_digest(place)
                op = records.CompactionFinal(ident, [records.FinalOutput(merge.physical, tail)])
                merge.is_final = True
            try:
                master.engine.commit([op])
            except TsferryError:
                continue

    @rule(at=MASTER, pressed=st.booleans())
    def a_master_lets_go_of_inputs(self, at: int, pressed: bool) -> None:
        """What is superseded, and nobody waits for any more."""
        master = self.there.masters[at]
        if not self.may_commit(master):
            return
        trees = [master.world._tree]
        disks = SimpleNamespace(
            trees=trees, away=list, standing=lambda: trees, leaving=threading.Lock()
        )
        reaper = Reaper(
            master.engine,
            disks,  # type: ignore[arg-type]
            SimpleNamespace(all=list, left=list),  # type: ignore[arg-type]
            keep_deleted=0.0,
            leftover_age=1e12,
            is_pressed=lambda: pressed,
        )
        reaper.nodes_with = master.copies.condition.count
        reaper.nodes_perhaps = master.copies.condition.perhaps
        try:
            reaper.run_once()
        except TsferryError:
            return

    # -- the oracle ----------------------------------------------------------------------------

    def what_is_merged_and_lost_is_found_out(self) -> None:
        """By an operator, as `fsck` says: a merged file that is nowhere gives way to its inputs."""

        def repair(master: OneOfTwo) -> None:
            for merge in self.merges:
                with master.engine.reading() as state:
                    row = state.files.get(merge.physical)
                is_here = (master.world.data / merge.physical).is_file()
                if row is None or not row.visible or is_here or self._is_at_a_node(merge):
                    continue
                master.engine.commit([records.FileQuarantined(merge.physical, "it is nowhere")])

        self._ask(repair)

    def _is_at_a_node(self, merge: _Merge) -> bool:
        for node in self.there.nodes:
            for path in node.paths:
                if any((each / merge.physical).is_file() for each in node.tablets_in(path)):
                    return True
        return False

    def names_of(self, path: str) -> dict[str, bytes]:
        found = super().names_of(path)
        return found | {
            each.physical: each.content
            for each in self.merges
            if each.is_final and path in each.paths
        }

    def _row(self, master: OneOfTwo, path: str) -> FileRow | None:
        found = super()._row(master, path)
        if found is not None or path not in self.freed:
            return found
        with master.engine.reading() as state:
            rows = [state.files.get(each) for each in self.names_of(path)]
        return next((row for row in rows if row is not None and row.visible), None)
