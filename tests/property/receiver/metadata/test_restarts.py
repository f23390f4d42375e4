"""Two engines with the same commits: one goes through checkpoints, collections and restarts.

Whatever is done to the one, it answers what the other answers, about now and about the past.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.errors import TsferryError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from tests.support import schema_view, tiers
from tests.support.metadata import A, B, load, path, physical, seen
from tests.support.schema_commits import everything, series

GROUPS = ["root.a", "root.b"]
DEVICES = ["root.a.d1", "root.a.d2", "root.b.d1", "root.a.x.d1"]
NAMES = ["s1", "s2", "s3"]
PATHS = [path("1-1-0"), path("2-2-0", part=1)]

texts = st.sampled_from(["x", "y,z", "é", "`"])
labels = st.dictionaries(st.sampled_from(["k1", "k2"]), texts, max_size=2)
series_paths = st.builds("{}.{}".format, st.sampled_from(DEVICES), st.sampled_from(NAMES))


@st.composite
def new_series(draw):
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    tags = draw(st.none() | st.lists(labels, min_size=len(names), max_size=len(names)))
    return series(draw(st.sampled_from(DEVICES)), *names, tags=tags)


operations = st.one_of(
    st.builds(records.StorageGroupSet, st.sampled_from(GROUPS), st.booleans()),
    st.builds(records.StorageGroupDeleted, st.sampled_from(GROUPS)),
    st.builds(records.TtlSet, st.sampled_from(GROUPS), st.none() | st.integers(1, 99)),
    new_series(),
    new_series(),
    st.builds(records.SeriesDeleted, series_paths | st.sampled_from(["root.a.**", "root.*.d1.*"])),
    st.builds(records.AliasSet, series_paths, st.none() | st.sampled_from(["other", "s3"])),
    st.builds(records.TagsSet, series_paths, labels, labels),
    st.builds(
        records.KeysWritten,
        st.lists(st.sampled_from(["k", "k/1", "z"]), max_size=1),
        st.dictionaries(st.sampled_from(["k", "k/1", "k/2", "z"]), texts, max_size=2),
    ),
    st.builds(seen, st.sampled_from([A, B]), texts),
    st.builds(
        lambda logical, tag, sender: load(logical, tag, sender=sender),
        st.sampled_from(PATHS),
        st.integers(0, 4),
        st.sampled_from([A, B]),
    ),
    st.builds(
        lambda logical, tag: records.FileDeleted(physical(logical, tag), "gone"),
        st.sampled_from(PATHS),
        st.integers(0, 4),
    ),
)
"""Names are few, so that commits meet; most of what rules refuse is tried too."""


def outcome(engine, ops):
    """(timestamp, None) or (None, class of the refusal)"""
    try:
        return engine.commit(ops), None
    except TsferryError as error:
        return None, type(error)


class Restarts(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.given = 0
        self.now = 1_000_000.0
        self.home = self.root / "one"
        self.open()
        self.still = Engine.open(
            self.root / "two", allocate=lambda newest: self.given, background=False
        )
        self.stamps = []

    def allocate(self, newest):
        self.given = newest + 1000
        return self.given

    def open(self):
        self.engine = Engine.open(
            self.home,
            allocate=self.allocate,
            clock=lambda: self.now,
            options=EngineOptions(history=1e12, history_commits=8),
            background=False,
        )

    @rule(ops=st.lists(operations, min_size=1, max_size=4))
    def commit(self, ops):
        ts, refusal = outcome(self.engine, ops)
        self.given = self.still.newest_commit + 1 if ts is None else ts
        assert outcome(self.still, ops) == (ts, refusal)
        if ts is not None:
            self.stamps.append(ts)

    @rule()
    def checkpoint(self):
        self.engine.checkpoint()

    @rule()
    def restart(self):
        self.engine.close()
        self.open()

    @rule()
    def restart_without_the_newest_checkpoint(self):
        self.engine.close()
        found = sorted(self.home.glob("mtree.snapshot-*.tsf"), key=lambda each: len(each.name))
        if len(found) == 2:
            max(found, key=lambda each: int(each.stem.partition("-")[2])).write_bytes(b"bad")
        self.open()

    @rule(size=st.integers(0, 400))
    def power_cut_takes_the_end_of_the_tlog(self, size):
        """Only what no checkpoint relies on: that was flushed."""
        self.engine.close()
        if not list(self.home.glob("mtree.snapshot-*.tsf")):
            content = (self.home / "tlog-1.tsf").read_bytes()
            keep = max(24, len(content) - size)
            (self.home / "tlog-1.tsf").write_bytes(content[:keep] + bytes(len(content) - keep))
        self.open()

    @precondition(lambda self: len(self.stamps) > 10)
    @rule()
    def collect(self):
        """What is older than eight commits goes, and nothing else."""
        self.engine._window.check(self.stamps[-8])
        self.engine._upkeep._horizon._options = EngineOptions(history=0.0, history_commits=8)
        self.engine.collect()
        assert self.engine.oldest_answerable <= self.stamps[-8]

    @invariant()
    def answers_about_now_are_the_same(self):
        mine, other = everything(self.engine), everything(self.still)
        mine["rows"].pop("uuid")
        other["rows"].pop("uuid")
        assert mine == other

    @invariant()
    def answers_about_the_past_are_the_same(self):
        for ts in self.stamps[-8::3]:
            if ts >= self.engine.oldest_answerable:
                assert schema_view.of_engine(self.engine, ts) == schema_view.of_engine(
                    self.still, ts
                )

    def teardown(self):
        self.engine.close()
        self.still.close()
        shutil.rmtree(self.root)


TestRestarts = Restarts.TestCase
TestRestarts.settings = settings(
    max_examples=tiers.examples(25),
    stateful_step_count=40,
)
