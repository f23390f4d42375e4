"""What stands for its inputs answers as they do, at every commit, whatever comes between.

The oracle knows points: which file gives which value at which time of which device, and which
deletions hide it. It ranks as readers do, and knows nothing of what dissolves a compaction.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import pytest

from common.errors import TsferryError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.ranks import Rank, cut_in, highest, rank_in
from receiver.metadata.query.applied_deletions import applied_deletions
from receiver.metadata.query.past_files import files_at
from receiver.metadata.state.state import State
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.tables.compactions import CompactedRow
from receiver.metadata.state.tables.retired import PartitionKey, partition_of
from receiver.metadata.state.transfer_cuts import TransferCuts
from tests.support import tiers
from tests.support.metadata import A, B, digest, load, path, seen

DEVICES = ("root.t.d1", "root.t.d2")
TIMES = 8
FOUND = (5035, 5049, 6590)
"""Lives that had other answers: by a circle of ranks; by a deletion file that began anew; in the
past, where a file was in quarantine, deleted, brought back and deleted."""
Points = dict[tuple[str, int], str]
"""The file that gives a point of a device and time."""


class Life:
    """Random commits, mostly over one partition, and the answers that readers got at each."""

    def __init__(self, directory: Path, seed: int, partitions: int = 1) -> None:
        self.chance = random.Random(seed)
        self.keys = [PartitionKey("root.t", "0", f"{each}") for each in range(partitions)]
        self.engine = Engine.open(directory / "e")
        self.engine.commit([seen(), seen(B, "other")])
        self.points: dict[str, set[tuple[str, int]]] = {}
        self.merged: dict[str, Points] = {}
        self.answers: dict[int, Points] = {}
        self.look = 100
        self.number = 0
        self.held = 0

    # -- what readers get --------------------------------------------------------------------

    def rows(self, state: State) -> list[FileRow]:
        return [row for key in self.keys for row in state.file_table.partition(*key)]

    def answer(self, state: State, rows: list[FileRow]) -> Points:
        """By the leaves: of each point the file that stands above."""
        given: dict[tuple[str, int], list[Rank]] = defaultdict(list)
        cuts = TransferCuts(state.owner_table.moves, state.newest)
        for row in rows:
            mine = cuts.of(row)
            for device, time in self.points[row.physical]:
                if not self.is_hidden(state, row, device, time):
                    given[device, time].append(rank_in(row.rank, cut_in(mine, device)))
        return {point: highest(ranks).physical for point, ranks in given.items()}

    def is_hidden(self, state: State, row: FileRow, device: str, time: int) -> bool:
        for note in applied_deletions(list(state.deletion_table), state.newest):
            if note.row.author != row.author:
                continue
            if note.row.physical != row.physical and row.closed > note.floor:
                continue
            for line in note.content.decode().splitlines():
                _, name, _, first, last = line.split(",")
                if name == f"{device}.s" and int(first) <= time <= int(last):
                    return True
        return False

    def by_outputs(self, state: State, rows: list[FileRow], held: list[CompactedRow]) -> Points:
        """By outputs in place of their inputs, and above them the other files."""
        inputs = {each for row in held for each in row.inputs}
        assert inputs <= {row.physical for row in rows}, "an input is not visible"
        answer: Points = {}
        for row in held:
            found = self.merged[f"{row.id}"]
            assert not answer.keys() & found.keys(), "two outputs overlap"
            answer |= found
        return answer | self.answer(state, [row for row in rows if row.physical not in inputs])

    def check(self) -> None:
        with self.engine.reading() as state:
            rows = self.rows(state)
            held = list(state.compacted_table.holding())
            answer = self.answer(state, rows)
            assert self.by_outputs(state, rows, held) == answer
            self.held += len(held)
            self.answers[state.newest] = answer

    def check_past(self) -> None:
        """Readers of an earlier commit read what stood for others then."""
        with self.engine.reading() as state:
            table = {ts: state.compacted_table.at(ts) for ts in self.answers}
        for ts, answer in self.answers.items():
            visible = {row.physical for row in files_at(self.engine, ts).visible}
            for row in table[ts]:
                inputs = set(row.inputs)
                assert inputs <= visible
                mine = {point: name for point, name in answer.items() if name in inputs}
                merged = self.merged[f"{row.id}"]
                assert mine.items() <= merged.items()

    # -- commits -----------------------------------------------------------------------------

    def one(self, *states: FileState) -> FileRow | None:
        with self.engine.reading() as state:
            rows = [row for row in state.files.values() if row.state in states]
        rows.sort(key=lambda row: row.physical)
        return self.chance.choice(rows) if rows else None

    def some_path(self) -> str:
        self.number += 1
        version = self.number if self.chance.random() < 0.7 else self.chance.randrange(1, 40)
        kind = self.chance.choice(("sequence", "unsequence"))
        stem = f"{1000 + self.number}-{version}-0-0"
        if self.chance.random() < 0.1:
            stem = f"copy{self.number}"
        part = 0 if len(self.keys) == 1 else self.chance.randrange(len(self.keys))
        return path(stem, kind=kind, part=part)

    def load(self) -> list[records.Op]:
        place = self.some_path()
        spans = {}
        for device in self.chance.sample(DEVICES, self.chance.randrange(1, 3)):
            first = self.chance.randrange(TIMES)
            spans[device] = (first, min(TIMES - 1, first + self.chance.randrange(4)))
        look = self.look if self.chance.random() < 0.8 else self.chance.randrange(90, self.look + 1)
        sender = A if self.chance.random() < 0.85 else B
        if len(self.keys) > 1 and not self.may_load(sender, spans):
            return []
        op = load(
            place, self.number, sender=sender, devices=spans, content=place,
            first_look=look, closed_look=look,
        )  # fmt: skip
        self.points[op.physical] = {
            (device, time)
            for device, (first, last) in spans.items()
            for time in range(first, last + 1)
            if time in (first, last) or self.chance.random() < 0.6
        }
        return [op]

    def may_load(self, sender: str, devices: Collection[str]) -> bool:
        """As loads have it: a device has one owner."""
        with self.engine.reading() as state:
            owners = [state.owner_table.rows.get(each) for each in devices]
        return all(each is None or each.sender == sender for each in owners)

    def delete_points(self) -> list[records.Op]:
        row = self.one(FileState.LIVE, FileState.RETIRED, FileState.QUARANTINED)
        if row is None:
            return []
        first = self.chance.randrange(TIMES)
        last = first + self.chance.randrange(3)
        content = f"DELETION,{self.chance.choice(DEVICES)}.s,1,{first},{last}\n".encode()
        floor = self.chance.choice((0, self.look - 1, self.chance.randrange(90, self.look)))
        with self.engine.reading() as state:
            known = sum(len(each.content) for each in state.deletion_table.of_file(row.physical))
        base = known if self.chance.random() < 0.7 else 0
        applied = self.chance.random() < 0.8
        return [
            records.DeletionsNoted(
                row.sender, row.path, row.physical, "mods", base, content, floor, applied,
                kept=None if applied else True,
            )
        ]  # fmt: skip

    def apply_kept(self) -> list[records.Op]:
        with self.engine.reading() as state:
            kept = [
                (row, [each.end for each in row.segments if each.may_apply])
                for row in state.deletion_table
                if not row.past
            ]
        kept = [(row, ends) for row, ends in kept if ends]
        if not kept:
            return []
        row, ends = self.chance.choice(kept)
        return [records.KeptRecordsApplied(row.sender, row.path, row.physical, row.form, ends)]

    def touch(self) -> list[records.Op]:
        kind = self.chance.randrange(12)
        seen_one = self.one(FileState.LIVE, FileState.RETIRED)
        if seen_one is None:
            return []
        name = seen_one.physical
        sometimes = self.chance.random() < 0.5
        if kind < 3:
            since = min(
                seen_one.rank.first, self.look
            )  # it was there in the look that had it first
            last = self.chance.choice((0, self.look, self.chance.randrange(since, self.look + 1)))
            return [records.FileRetired(name, last)]
        if kind == 3:
            return [records.FileReturned(name, "", self.look * sometimes)]
        if kind == 4:
            return [records.FileQuarantined(name, "rot")]
        if kind == 5 and (bad := self.one(FileState.QUARANTINED)):
            return [records.FileRestored(bad.physical)]
        if kind == 6:
            return [records.FileDeleted(name, "operator")]
        if kind == 7:
            return [records.FileNamed(name, self.some_path(), self.look * sometimes)]
        if kind == 8 and seen_one.names:
            gone = self.chance.choice(seen_one.paths)
            return [records.FileUnnamed(name, gone, self.look * sometimes)]
        if kind == 9 and sometimes:
            return [records.ListBegun(seen_one.sender, self.look)]
        if kind == 10:
            owner = self.chance.choice((A, B, None))
            return [records.OwnerSet(self.chance.choice(DEVICES), owner, "why")]
        if kind == 11 and (gone := self.one(FileState.DELETED)):
            spans: dict[str, list[int]] = defaultdict(list)
            for device, time in self.points[gone.physical]:
                spans[device].append(time)
            ranges = [records.DeviceRange(k, min(v), max(v)) for k, v in sorted(spans.items())]
            return [records.FileUndeleted(gone.physical, ranges)]
        return []

    def supersede(self) -> list[records.Op]:
        """A file that ended and gives nothing rests on those that give its points."""
        with self.engine.reading() as state:
            rows = self.rows(state)
            answer = self.answer(state, rows)
        for row in rows:
            givers = {answer[each] for each in self.points[row.physical] if each in answer}
            whole = all(each in answer for each in self.points[row.physical])
            if row.state is FileState.RETIRED and whole and row.physical not in givers:
                return [records.FileSuperseded(row.physical, sorted(givers))]
        back = self.one(FileState.SUPERSEDED)
        return [] if back is None else [records.FileRevived(back.physical)]

    def compact(self) -> list[records.Op]:
        """A whole cluster of one sender's, as whoever chooses does."""
        with self.engine.reading() as state:
            cuts = TransferCuts(state.owner_table.moves, state.newest)
            key = self.keys[0] if len(self.keys) == 1 else self.chance.choice(self.keys)
            chosen = [
                cluster
                for cluster in _clusters(self.rows(state))
                if len({row.sender for row in cluster}) == 1
                and not any(map(cuts.of, cluster))
                and all(partition_of(row.physical) == key for row in cluster)
            ]
            if not chosen:
                return []
            several = self.chance.sample(chosen, self.chance.randrange(1, len(chosen) + 1))
            sender = several[0][0].sender
            inputs = [row for each in several for row in each if row.sender == sender]
            found = self.answer(state, inputs)
            at = state.newest
        self.number += 1
        ident = self.number
        self.merged[f"{ident}"] = found
        spans: dict[str, list[int]] = defaultdict(list)
        for device, time in found:
            spans[device].append(time)
        output = records.CompactionOutput(
            f"sequence/{'/'.join(key)}/merged-{ident}-0.tsfile", 1, digest("x"), 4,
            [records.DeviceRange(name, min(each), max(each)) for name, each in spans.items()],
            min((time for _, time in found), default=None),
            max((time for _, time in found), default=None), len(spans), len(found),
        )  # fmt: skip
        stale = self.chance.random() < 0.3
        if stale:  # something came meanwhile: it is refused, or stands above
            self.commit(self.load() if self.chance.random() < 0.5 else self.touch())
        names = [row.physical for row in inputs]
        return [records.FilesCompacted(ident, at, names, [output] if found else [])]

    def commit(self, ops: list[records.Op]) -> None:
        with suppress(TsferryError):
            if ops:
                self.engine.commit(ops)
                self.check()

    def step(self) -> None:
        if self.chance.random() < 0.5:
            self.look += 1
        chosen = self.chance.choices(
            (self.load, self.compact, self.delete_points, self.apply_kept, self.touch,
             self.supersede),
            (6, 4, 2, 1, 6, 1),
        )[0]  # fmt: skip
        ops = chosen()
        if self.chance.random() < 0.1:
            ops += self.touch()
        self.commit(ops)


def _clusters(rows: list[FileRow]) -> list[list[FileRow]]:
    """Files that overlap each other, directly or by others."""
    clusters: list[list[FileRow]] = []
    for row in rows:
        mine = list(row.devices.ranges())
        met = [
            each
            for each in clusters
            if any(
                a == b and first <= end and begin <= last
                for other in each
                for a, first, last in other.devices.ranges()
                for b, begin, end in mine
            )
        ]
        joined = [row, *(other for each in met for other in each)]
        clusters = [each for each in clusters if each not in met] + [joined]
    return clusters


def live(directory: Path, seed: int, steps: int = 80, partitions: int = 1) -> Life:
    life = Life(directory, seed, partitions)
    with life.engine:
        for _ in range(steps):
            life.step()
        life.check_past()
    return life


@pytest.mark.parametrize("seed", [*range(tiers.examples(20)), *FOUND])
def test_outputs_answer_as_their_inputs_do_at_every_commit(tmp_path: Path, seed: int) -> None:
    live(tmp_path, seed)


@pytest.mark.parametrize("seed", range(tiers.examples(20)))
def test_so_they_do_where_files_of_other_partitions_have_times_of_theirs(
    tmp_path: Path, seed: int
) -> None:
    live(tmp_path, seed, partitions=2)


def test_lives_have_compactions_that_hold_for_long(tmp_path: Path) -> None:
    for seed in range(4):
        (tmp_path / f"{seed}").mkdir()
    assert sum(live(tmp_path / f"{seed}", seed).held for seed in range(4)) > 40
