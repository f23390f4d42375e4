"""Merges of what was loaded at the centre answer as their inputs do, for good as well.

The life and its oracle are those of `test_compactions_hold`: here most files are of the centre, on
nobody's list, of devices of two edges and of its own, above all that is there or below it. Edges
bring what they looked at earlier, operators delete, and bring back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from receiver.metadata.model import records
from receiver.metadata.model.centre_source import centre_uuid, is_centre
from receiver.metadata.model.ranks import LOWEST_LOOK
from receiver.metadata.state.table_rows import FileRow, FileState
from tests.property.receiver.metadata.test_compactions_hold import DEVICES, TIMES, Life
from tests.support import tiers
from tests.support.metadata import A, load, path, seen


class CentreLife(Life):
    """One in which most files are loaded at the centre."""

    def __init__(self, directory: Path, seed: int, **kinds: Any) -> None:
        super().__init__(directory, seed, ends=True, **kinds)
        self.centre = centre_uuid(self.engine.uuid)
        self.engine.commit([seen(self.centre, "centre")])
        self.lowest = LOWEST_LOOK
        self.merged_for_good = 0

    def load(self) -> list[records.Op]:
        """Mostly at the centre; or an edge brings what it has looked at, be it long ago."""
        spans = {}
        for device in self.chance.sample(DEVICES, self.chance.randrange(1, 3)):
            low = self.chance.randrange(TIMES)
            spans[device] = (low, min(TIMES - 1, low + self.chance.randrange(4)))
        with self.engine.reading() as state:
            rows = [state.owner_table.rows.get(each) for each in spans]
        owners = sorted({row.sender for row in rows if row is not None} - {self.centre})
        if self.chance.random() < 0.3 and len(owners) == 1:
            place, sender = self.some_path(), owners[0]
            first = closed = self.chance.randrange(self.base + 90, self.look + 1)
            if not self.may_load(sender, spans):
                return []
        else:
            self.number, self.look = self.number + 1, self.look + 1
            part, sender = self.chance.randrange(len(self.keys)), self.centre
            place = path(f"c{self.number}", part=part)
            first = closed = self.look
            if self.chance.random() < 0.3:
                first = self.lowest = self.lowest - 1
        owner = owners[0] if owners else self.chance.choice(("", A))
        op = load(
            place, self.number, sender=sender, devices=spans, content=place,
            first_look=first, closed_look=closed, owner=owner, others=owners[1:],
        )  # fmt: skip
        self.points[op.physical] = {
            (device, time)
            for device, (low, high) in spans.items()
            for time in range(low, high + 1)
            if time in (low, high) or self.chance.random() < 0.6
        }
        return [op]

    def delete_points(self) -> list[records.Op]:
        """What comes beside a file of a load reaches no other file."""
        ops = super().delete_points()
        told = [op for op in ops if isinstance(op, records.DeletionsNoted)]
        if any(is_centre(op.sender) and op.floor for op in told):
            return []
        return ops

    def touch(self) -> list[records.Op]:
        ops = super().touch()
        made: list[records.Op] = []
        for op in ops:
            row = self.row(op)
            if row is None or not is_centre(row.sender):
                if not (isinstance(op, records.ListBegun) and is_centre(op.sender)):
                    made.append(op)
                continue
            if isinstance(op, records.FileUndeleted):
                made += [op, records.FileReturned(op.physical)]
            elif not isinstance(op, _OF_LISTS):
                made.append(op)
        return made

    def row(self, op: records.Op) -> FileRow | None:
        with self.engine.reading() as state:
            return state.files.get(getattr(op, "physical", ""))

    def end(self) -> list[records.Op]:
        return self.of_edges(super().end())

    def supersede(self) -> list[records.Op]:
        """Only what is gone at an edge is proved to be elsewhere, or takes that back."""
        return self.of_edges(super().supersede())

    def of_edges(self, ops: list[records.Op]) -> list[records.Op]:
        return [op for op in ops if (row := self.row(op)) is None or not is_centre(row.sender)]

    def finish(self) -> list[records.Op]:
        ops = super().finish()
        for op in ops:
            if isinstance(op, records.CompactionFinal):
                with self.engine.reading() as state:
                    self.merged_for_good += is_centre(state.compacted_table.rows[op.id].sender)
        return ops

    def check(self) -> None:
        super().check()
        with self.engine.reading() as state:
            rows = self.rows(state)
        mine = [row.state for row in rows if is_centre(row.sender)]
        assert set(mine) <= {FileState.LIVE}, "nobody has let go of it"


_OF_LISTS = (
    records.FileRetired, records.FileReturned, records.FileNamed, records.FileUnnamed,
)  # fmt: skip


def live(directory: Path, seed: int, steps: int = 80, **kinds: Any) -> CentreLife:
    life = CentreLife(directory, seed, **kinds)
    with life.engine:
        for _ in range(steps):
            life.step()
        life.check_past()
    return life


@pytest.mark.parametrize("seed", range(tiers.examples(20)))
@pytest.mark.parametrize("partitions", [1, 2])
def test_what_was_loaded_at_the_centre_answers_as_before_whatever_comes_later(
    tmp_path: Path, seed: int, partitions: int
) -> None:
    live(tmp_path, seed, partitions=partitions, cuts=bool(seed % 2))


def test_lives_have_loads_that_were_merged_for_good(tmp_path: Path) -> None:
    lives = []
    for seed in range(8):
        (tmp_path / f"{seed}").mkdir()
        lives.append(live(tmp_path / f"{seed}", seed))
    assert sum(each.merged_for_good for each in lives) > 8
