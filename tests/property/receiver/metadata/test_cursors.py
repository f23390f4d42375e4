"""Cursors whose pages lie between commits, collections, checkpoints and restarts.

Every answer is compared, row by row, with what a dictionary had at the commit that it is about.
Budgets and pages are tiny, and rows are given to other nodes all the time.
"""

import random
import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from receiver.metadata import engine_upkeep
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import HistoryGoneError, NotATagError
from receiver.metadata.query import ordering
from receiver.metadata.schema.tree_columns import order
from receiver.metadata.sql.executing import execute
from tests.support import tiers

SIDES = ("left", "right")


def path(side, device, name):
    return f"root.{side}.{device}.{name}"


QUESTIONS = {
    "show timeseries root.**": lambda rows: rows,
    "show timeseries root.*.*.*": lambda rows: rows,
    "show timeseries root.**.s": lambda rows: [row for row in rows if row.endswith(".s")],
    "show timeseries root.*.p1.*": lambda rows: [row for row in rows if ".p1." in row],
    "show timeseries root.right": lambda rows: [row for row in rows if ".right." in row],
    "show timeseries where name = t": lambda rows: [row for row in rows if row.endswith(".t")],
    "show timeseries order by heat": lambda rows: rows,
    "show devices": lambda rows: sorted({row.rpartition(".")[0] for row in rows}),
}


class World:
    """An engine with its clock, the model, and the cursors that are open."""

    def __init__(self, home, randomly):
        self.home, self.randomly = home, randomly
        self.now = 1_700_000_000.0
        self.options = EngineOptions(history=randomly.choice([0.05, 0.2, 1.0]), checkpoint_rest=1e9)
        self.there = set()
        self.cursors = []
        self.compared = 0
        self.open()
        self.engine.commit([records.StorageGroupSet(f"root.{side}") for side in SIDES])
        self.past = {}
        self.remember()

    def open(self):
        self.engine = Engine.open(
            self.home,
            options=self.options,
            clock=lambda: self.now,
            monotonic=lambda: self.now,
            background=False,
        )

    def remember(self):
        self.past[self.engine.newest_commit] = sorted(
            path(side, *each) for side in SIDES for each in self.there
        )

    # -- what happens --

    def change(self):
        device, name = f"p{self.randomly.randrange(4)}", self.randomly.choice("st")
        both = [path(side, device, name) for side in SIDES]
        if (device, name) not in self.there:
            tags = [{"name": name}]
            ops = [
                records.SeriesCreated(
                    f"root.{side}.{device}", [name], b"\3", b"\x08", b"\1", tags=tags
                )
                for side in SIDES
            ]
            self.there.add((device, name))
        elif self.randomly.random() < 0.7:
            ops = [records.SeriesDeleted(each) for each in both]
            if self.randomly.random() < 0.3:
                ops = [records.SeriesDeleted(f"root.*.{device}.{name}")]
            self.there.remove((device, name))
        else:
            number = str(self.randomly.randrange(3))
            ops = [records.TagsSet(each, {"name": name, "n": number}, {}) for each in both]
        self.engine.commit(ops)
        self.remember()

    def ask(self):
        text = self.randomly.choice(list(QUESTIONS))
        at = self.randomly.choice([None, None, self.randomly.choice(list(self.past))])
        try:
            result = execute(self.engine, text, at=at, fetch_size=self.randomly.choice([1, 2, 3]))
        except HistoryGoneError:
            return
        self.cursors.append((text, result, []))

    def go_on(self, cursor):
        text, result, rows = cursor
        expected = QUESTIONS[text](self.past[result.commit])
        try:
            page = result.fetch()
        except HistoryGoneError:
            assert result.commit < self.engine.oldest_answerable
            self.cursors.remove(cursor)
            return
        except NotATagError:
            assert not expected
            page = []
        rows += [row[0] for row in page]
        assert rows == expected[: len(rows)], text
        if not page:
            assert rows == expected, text
            self.compared += 1
            self.cursors.remove(cursor)

    def restart(self):
        self.engine.close()
        self.cursors.clear()
        self.open()

    def step(self):
        self.now += self.randomly.choice([0.0, 0.001, 0.01, 0.05])
        chance = self.randomly.random()
        if chance < 0.5:
            self.change()
        elif chance < 0.75:
            self.ask()
        elif chance < 0.93:
            self.engine.collect()
        elif chance < 0.97:
            self.engine.checkpoint()
        elif chance < 0.98:
            self.restart()
        for cursor in list(self.cursors):
            if self.randomly.random() < 0.5:
                self.go_on(cursor)


@settings(max_examples=tiers.examples(15), suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32), st.sampled_from([1, 3, 256]), st.sampled_from([2, 9999]))
def test_cursors_show_their_commit_whatever_comes_between_two_pages(seed, ordered, ahead):
    with (
        tempfile.TemporaryDirectory() as home,
        mock.patch.object(engine_upkeep, "_BUDGET", 3),
        mock.patch.object(order, "_SORTED_FROM", ordered),
        mock.patch.object(ordering, "_AHEAD", ahead),
    ):
        world = World(Path(home), random.Random(seed))
        try:
            for _ in range(150):
                world.step()
            while world.cursors:
                world.go_on(world.cursors[0])
        finally:
            world.engine.close()
        assert world.compared
