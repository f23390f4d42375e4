"""What stands for its inputs answers as they do, at every commit, whatever comes between.

The oracle knows points: which file gives which value at which time of which device, and which
deletions hide it. It ranks as readers do, and knows nothing of what dissolves a compaction, nor of
what lets one become final: of a final one it remembers the files that it is made of, as they stood,
and goes on ranking these against all that comes, whatever became of their rows.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import pytest

from common.errors import ConflictError, TsferryError
from receiver.metadata.commit.replaced.becoming_final import why_not_final
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.ranks import LOWEST_LOOK, Rank, cut_in, highest, rank_in
from receiver.metadata.query.applied_deletions import applied_deletions
from receiver.metadata.query.past_files import files_at
from receiver.metadata.state.state import State
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow
from receiver.metadata.state.tables.file_tables.retired import PartitionKey, partition_of
from receiver.metadata.state.transfer_cuts import TransferCuts
from tests.support import tiers
from tests.support.metadata import A, B, digest, load, path, seen

DEVICES = ("root.t.d1", "root.t.d2")
TIMES = 8
FOUND = (5035, 5049, 6590)
"""Lives that had other answers: by a circle of ranks; by a deletion file that began anew; in the
past, where a file was in quarantine, deleted, brought back and deleted."""
FOUND_BESIDE = 21690
"""One with two partitions: a file of the other one came back from quarantine, and stood between."""
Points = dict[tuple[str, int], str]
"""The file that gives a point of a device and time."""
Ghost = tuple[FileRow, set[tuple[str, int]]]
"""A file as it stood when it was merged for good, and what it gave then."""


class Life:
    """Random commits, mostly over one partition, and the answers that readers got at each."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        partitions: int = 1,
        *,
        ends: bool = False,
        cuts: bool = False,
    ) -> None:
        """Begin one; `ends`: compactions become final in it; `cuts`: some have two outputs."""
        self.chance = random.Random(seed)
        self.keys = [PartitionKey("root.t", "0", f"{each}") for each in range(partitions)]
        self.engine = Engine.open(directory / "e")
        self.engine.commit([seen(), seen(B, "other")])
        self.points: dict[str, set[tuple[str, int]]] = {}
        self.givers: dict[str, Points] = {}
        """Of a final output, which file each point is of."""
        self.inside: dict[str, list[Ghost]] = {}
        """Of a final output, the files that it is made of, and what they gave then."""
        self.refused = 0
        """Files that came too late."""
        self.finals = 0
        self.merged: dict[str, Points] = {}
        self.parts: dict[str, Points] = {}
        """Of each output what it gives."""
        self.answers: dict[int, Points] = {}
        self.base = LOWEST_LOOK if ends else 0
        self.look = self.base + 100
        self.number = 0
        self.held = 0
        self.ends = ends
        self.cuts = cuts
        self.quiet = ends and self.chance.random() < 0.5
        """Whether things mostly end, as they do at an edge that frees what is old."""
        self.forgotten = False

    # -- what readers get --------------------------------------------------------------------

    def rows(self, state: State) -> list[FileRow]:
        return [row for key in self.keys for row in state.file_table.partition(*key)]

    def answer(self, state: State, rows: list[FileRow]) -> Points:
        """By the leaves: of each point the file that stands above."""
        given: dict[tuple[str, int], dict[str, Rank]] = defaultdict(dict)
        cuts = TransferCuts(state.owner_table.moves, state.newest)
        for row in sorted(rows, key=lambda row: row.physical not in self.inside):
            for leaf, points in self.inside.get(row.physical, [(row, self.points[row.physical])]):
                mine = cuts.of(leaf)
                for device, time in points:
                    if not self.is_hidden(state, row, device, time):
                        rank = rank_in(leaf.rank, cut_in(mine, device))
                        given[device, time][leaf.physical] = rank
        return {point: highest(ranks.values()).physical for point, ranks in given.items()}

    def by_rows(self, state: State, rows: list[FileRow]) -> Points:
        """As readers do: of each point the row that stands above."""
        given: dict[tuple[str, int], list[Rank]] = defaultdict(list)
        cuts = TransferCuts(state.owner_table.moves, state.newest)
        for row in rows:
            mine = cuts.of(row)
            for device, time in self.points[row.physical]:
                if not self.is_hidden(state, row, device, time):
                    given[device, time].append(rank_in(row.rank, cut_in(mine, device)))
        return {point: highest(ranks).physical for point, ranks in given.items()}

    def leaves(self, answer: Points) -> Points:
        """What rows give, by the files that these are made of."""
        return {point: self.givers.get(name, {}).get(point, name) for point, name in answer.items()}

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
        others = [row for row in rows if row.physical not in inputs]
        return answer | self.leaves(self.by_rows(state, others))

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
            try:
                visible = {row.physical for row in files_at(self.engine, ts).visible}
            except HistoryGoneError:  # files that were there have left the disk
                assert self.forgotten
                continue
            for row in table[ts]:
                inputs = set(row.inputs)
                assert inputs <= visible
                within: set[tuple[tuple[str, int], str]] = set()
                for each in inputs & self.inside.keys():
                    within |= self.givers[each].items()
                mine = {
                    point: name
                    for point, name in answer.items()
                    if name in inputs or (point, name) in within
                }
                merged = self.merged[f"{row.id}"]
                assert mine.items() <= merged.items()

    # -- commits -----------------------------------------------------------------------------

    def one(self, *states: FileState, edge: bool = False) -> FileRow | None:
        """Some row; `edge`: of a file that its edge may have, or say something of."""
        with self.engine.reading() as state:
            rows = [row for row in state.files.values() if row.state in states]
            if edge:
                finals = {each for row in state.compacted_table.finals.all() for each in row.became}
                merged = {leaf.physical for each in finals for leaf, _ in self.inside[each]}
                rows = [row for row in rows if row.physical not in finals | merged]
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
        look = (
            self.look
            if self.chance.random() < 0.8
            else self.chance.randrange(self.base + 90, self.look + 1)
        )
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
        row = self.one(FileState.LIVE, FileState.RETIRED, FileState.QUARANTINED, edge=True)
        if row is None:
            return []
        first = self.chance.randrange(TIMES)
        last = first + self.chance.randrange(3)
        content = f"DELETION,{self.chance.choice(DEVICES)}.s,1,{first},{last}\n".encode()
        floor = self.chance.choice(
            (0, self.look - 1, self.chance.randrange(self.base + 90, self.look))
        )
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
            if self.cuts:  # the commit counts where none was told: as if later looks came before it
                last = last or self.look
            return [records.FileRetired(name, last)]
        if kind == 3 and self.ends:
            there = self.one(FileState.RETIRED, edge=True)
            name = name if there is None else there.physical
        if kind == 3 and name not in self.inside:
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
            answer = self.by_rows(state, rows)
        for row in rows:
            givers = {answer[each] for each in self.points[row.physical] if each in answer}
            whole = all(each in answer for each in self.points[row.physical])
            if row.state is FileState.RETIRED and whole and row.physical not in givers:
                return [records.FileSuperseded(row.physical, sorted(givers))]
        back = self.one(FileState.SUPERSEDED)
        return [] if back is None else [records.FileRevived(back.physical)]

    def reap(self) -> list[records.Op]:
        """What is superseded leaves the disk, then its row goes."""
        row = self.one(FileState.SUPERSEDED, FileState.DELETED)
        if row is None:
            return []
        if row.state is FileState.SUPERSEDED:
            return [records.FileDeleted(row.physical, "superseded")]
        self.forgotten = True
        return [records.FileForgotten(row.physical)]

    def end(self) -> list[records.Op]:
        """All that a merge is made of, and perhaps more, is gone at the edge."""
        with self.engine.reading() as state:
            held = list(state.compacted_table.holding())
            live = [row for row in state.files.values() if row.state is FileState.LIVE]
        if not held:
            return []
        inputs = set(self.chance.choice(held).inputs)
        ended = [row for row in live if row.physical in inputs or self.chance.random() < 0.3]
        self.look += 1
        return [records.FileRetired(row.physical, self.look - 1) for row in ended]

    def finish(self) -> list[records.Op]:
        """A compaction becomes final, if it may."""
        with self.engine.reading() as state:
            held = [row for row in state.compacted_table.holding() if row.outputs]
        self.chance.shuffle(held)
        self.look += 1
        for row in held:
            with self.engine.reading() as state:
                if why_not_final(state, row) is None:
                    break
        else:
            return []
        made = [records.FinalOutput(each.physical, digest("tail")) for each in row.outputs]
        with self.engine.reading() as state:
            inputs = [state.files[each] for each in row.inputs]
            ghosts = [
                (leaf, {each for each in points if not self.is_hidden(state, file, *each)})
                for file in inputs
                for leaf, points in self.inside.get(
                    file.physical, [(file, self.points[file.physical])]
                )
            ]
        for each in made:
            given = self.parts[each.physical]
            self.points[each.physical] = set(given)
            self.givers[each.physical] = given
            self.inside[each.physical] = [(leaf, mine & given.keys()) for leaf, mine in ghosts]
        return [records.CompactionFinal(row.id, made)]

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
            found = self.leaves(self.by_rows(state, inputs))
            at = state.newest
        self.number += 1
        ident = self.number
        self.merged[f"{ident}"] = found
        outputs = [
            self.output(f"sequence/{'/'.join(key)}/merged-{ident}-{at}.tsfile", part)
            for at, part in enumerate(self.several(found), 1)
        ]
        stale = self.chance.random() < 0.3
        if stale:  # something came meanwhile: it is refused, or stands above
            self.commit(self.load() if self.chance.random() < 0.5 else self.touch())
        names = [row.physical for row in inputs]
        return [records.FilesCompacted(ident, at, names, outputs)]

    def several(self, found: Points) -> list[Points]:
        """What a merge gives, in one output or in two: some devices each, or some times."""
        if not self.cuts or self.chance.random() < 0.4:
            return [found] if found else []
        by = self.chance.randrange(2)
        cut = (DEVICES[1], self.chance.randrange(1, TIMES))[by]
        low = {point: name for point, name in found.items() if point[by] < cut}  # type: ignore[operator]
        high = {point: name for point, name in found.items() if point not in low}
        return [each for each in (low, high) if each]

    def output(self, physical: str, given: Points) -> records.CompactionOutput:
        self.parts[physical] = given
        spans: dict[str, list[int]] = defaultdict(list)
        for device, time in given:
            spans[device].append(time)
        times = [time for _, time in given]
        return records.CompactionOutput(
            physical, 1, digest("x"), 4,
            [records.DeviceRange(name, min(each), max(each)) for name, each in spans.items()],
            min(times), max(times), len(spans), len(given),
        )  # fmt: skip

    def commit(self, ops: list[records.Op]) -> None:
        try:
            if ops:
                before = self.answers.get(self.engine.newest_commit)
                self.engine.commit(ops)
                self.check()
                if isinstance(ops[0], records.CompactionFinal):
                    assert self.answers[self.engine.newest_commit] == before
        except TsferryError as error:
            if "merged for good" in error.message:
                self.refused += isinstance(error, ConflictError)
                asked = (records.FileLoaded, records.FileRevived)
                assert any(isinstance(op, asked) for op in ops), "what happens is not refused"

    def step(self) -> None:
        if self.chance.random() < 0.5:
            self.look += 1
        kinds = (self.load, self.compact, self.delete_points, self.apply_kept, self.touch,
                 self.supersede, self.end, self.finish, self.reap)  # fmt: skip
        weights = (4, 6, 1, 0, 2, 1, 4, 6, 4) if self.quiet else (6, 4, 2, 1, 6, 1, 1, 1, 1)
        among = len(kinds) if self.ends else 6
        chosen = self.chance.choices(kinds[:among], weights[:among])[0]
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


def live(directory: Path, seed: int, steps: int = 80, partitions: int = 1, **kinds: bool) -> Life:
    life = Life(directory, seed, partitions, **kinds)
    with life.engine:
        for _ in range(steps):
            life.step()
        life.check_past()
        with life.engine.reading() as state:
            life.finals = len(state.compacted_table.finals.all())
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


@pytest.mark.parametrize("seed", range(tiers.examples(20)))
def test_final_outputs_answer_as_their_inputs_would_whatever_comes_later(
    tmp_path: Path, seed: int
) -> None:
    live(tmp_path, seed, ends=True)


@pytest.mark.parametrize("seed", [*range(tiers.examples(10)), FOUND_BESIDE])
def test_so_do_final_ones_where_files_of_other_partitions_have_times_of_theirs(
    tmp_path: Path, seed: int
) -> None:
    live(tmp_path, seed, partitions=2, ends=True)


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", range(tiers.examples(20)))
@pytest.mark.parametrize("ends", [False, True])
def test_so_do_several_outputs_of_one_merge(tmp_path: Path, seed: int, ends: bool) -> None:
    live(tmp_path, seed, partitions=1 + seed % 2, ends=ends, cuts=True)


def test_lives_have_final_compactions_and_files_that_come_too_late(tmp_path: Path) -> None:
    lives = []
    for seed in range(8):
        (tmp_path / f"{seed}").mkdir()
        lives.append(live(tmp_path / f"{seed}", seed, ends=True))
    assert sum(each.finals for each in lives) > 8
    assert sum(each.refused for each in lives) > 0
