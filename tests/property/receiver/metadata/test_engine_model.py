"""The schema of the engine against plain dictionaries, whatever happens to the engine in between.

Commits legal and illegal, alterations, questions as of now and as of any commit, by way of the
state and of SQL; restarts, checkpoints, cut logs and tag logs, a damaged checkpoint, a history
that moves on. Names are few, so that everything meets.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from common.errors import DamagedError, TsferryError
from receiver.metadata.engine import Engine
from receiver.metadata.model import alterations, records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.model.timestamps import from_seconds
from receiver.metadata.sql.executing import execute
from tests.support import metadata as files
from tests.support import schema_model as model
from tests.support import schema_view as view
from tests.support import tiers

GROUPS = ["root.a", "root.b", "root.a.b", "root.c.`1`"]
DEVICES = [
    "root.a",
    "root.a.d1",
    "root.a.d1.s2",
    "root.a.b.d1",
    "root.b.`d 1`",
    "root.c.`1`.d",
    "root.q",
]
NAMES = ["s1", "s2", "s.3", "b", "t1", "é"]
ALIASES = ["s1", "t1", "t2", "b"]
PATTERNS = [
    "root.**",
    "root.a.**",
    "root.*.*",
    "root.*.d1.*",
    "root.a.d1.s1",
    "root.a.d1.t1",
    "root.**.s1",
    "root.a.d*.s*",
    "root.b.`d 1`.`s.3`",
    "root.c.`1`.**",
    "root.**.b.*",
    "root.*.b.**.s*",
    "root.a.`*`",
]
PATHS = [f"{device}.{model.quote(name)}" for device in DEVICES for name in (*NAMES, "t2")]
KEYS = ["k1", "k2", "k3"]
VALUES = ["v1", "v2", "v 1", ""]
LARGE = "x" * 1000

codes = st.sampled_from(model.LEGAL * 12 + model.ILLEGAL)
loaded_codes = st.sampled_from(model.LEGAL)
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2)
more_labels = st.dictionaries(st.sampled_from(["a1", "a2"]), st.sampled_from(VALUES), max_size=2)
times = st.none() | st.integers(-5, 5)


@st.composite
def creations(draw):
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3))
    count = len(names)
    columns = [draw(codes) for _ in names]

    def optional(values):
        given = st.lists(values, min_size=count, max_size=count)
        return draw(st.one_of(st.none(), st.none(), given))

    return records.SeriesCreated(
        draw(st.sampled_from(DEVICES)),
        names,
        bytes(each[0] for each in columns),
        bytes(each[1] for each in columns),
        bytes(each[2] for each in columns),
        draw(st.booleans()),
        optional(st.none() | st.sampled_from(ALIASES)),
        optional(labels),
        optional(more_labels | labels),
        optional(st.dictionaries(st.just("max_point_number"), st.just("3"), max_size=1)),
    )


FIRST = records.SeriesCreated(
    "root.a.d1",
    ["s1", "s2"],
    bytes([1, 3]),
    bytes([2, 8]),
    bytes([1, 1]),
    aliases=["t1", None],
    tags=[{"k1": "v1"}, {"k1": "v1", "k2": "v2"}],
)

tags_of_any_size = st.one_of(labels, labels, labels, st.just({"k1": LARGE}))
groups = st.sampled_from(GROUPS)
paths = st.sampled_from(PATHS)

operations = st.one_of(
    creations(),
    creations(),
    creations(),
    st.builds(records.StorageGroupSet, groups, st.booleans()),
    st.builds(records.StorageGroupDeleted, groups),
    st.builds(records.TtlSet, groups, st.sampled_from([None, 1, 1000, (1 << 63) - 1, 0, -1])),
    st.builds(records.SeriesDeleted, st.sampled_from(PATTERNS) | paths),
    st.builds(records.AliasSet, paths, st.none() | st.sampled_from(ALIASES)),
    st.builds(records.TagsSet, paths, tags_of_any_size, more_labels | labels),
    st.builds(
        records.KeysWritten,
        st.lists(st.sampled_from(["x/", "x/a", "y", ""]), max_size=1),
        st.dictionaries(
            st.sampled_from(["x/a", "x/ab", "y", "z"]), st.sampled_from(VALUES), min_size=1
        ),
    ),
)


def on_series(path):
    """An operation on a series, or one that gets in its way."""
    nodes = model.nodes_of(path)
    device = model.text(nodes[:-1])
    return st.one_of(
        st.just(records.SeriesDeleted(path)),
        st.just(records.SeriesDeleted(f"{device}.*")),
        st.builds(records.AliasSet, st.just(path), st.none() | st.sampled_from(ALIASES)),
        st.builds(records.TagsSet, st.just(path), tags_of_any_size, more_labels | labels),
        st.builds(create_one, st.just(path), st.sampled_from(NAMES)),
        st.builds(create_one, st.just(device), st.sampled_from(NAMES + ALIASES)),
        st.builds(create_one, st.just(f"{device}.t1"), st.sampled_from(NAMES)),
    )


def create_one(device, name):
    return records.SeriesCreated(device, [name], b"\x03", b"\x08", b"\x01")


changes = st.one_of(
    st.builds(alterations.Rename, st.sampled_from([*KEYS, "a1"]), st.sampled_from([*KEYS, "a1"])),
    st.builds(alterations.SetValues, labels),
    st.builds(alterations.Drop, st.lists(st.sampled_from([*KEYS, "a1"]), max_size=2).map(tuple)),
    st.builds(alterations.AddTags, labels),
    st.builds(alterations.AddAttributes, more_labels | labels),
    st.builds(
        alterations.Upsert,
        st.none() | st.sampled_from(ALIASES),
        tags_of_any_size,
        more_labels | labels,
    ),
)

ALTER = {
    alterations.Rename: lambda row, change: model.rename(row, change.old, change.new),
    alterations.SetValues: lambda row, change: model.set_values(row, change.values),
    alterations.Drop: lambda row, change: model.drop(row, change.keys),
    alterations.AddTags: lambda row, change: model.add(row, "tags", change.tags),
    alterations.AddAttributes: lambda row, change: model.add(row, "attributes", change.attributes),
    alterations.Upsert: lambda row, change: model.upsert(
        row, change.alias, change.tags, change.attributes
    ),
}


class SchemaAgainstModel(RuleBasedStateMachine):
    @initialize(history=st.sampled_from([600.0, 1e9]))
    def begin(self, history):
        shm = Path("/dev/shm")
        self.place = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.home = self.place / "schema"
        self.copies = 0
        self.now = self.latest = 1_000_000.0
        self.spent = 0.0
        self.file = 0
        self.options = EngineOptions(history=history, checkpoint_rest=1e9, auto_create=False)
        self.engine = self.open(self.home)
        self.versions = model.Versions(self.engine.newest_commit)
        self.oldest = 0
        self.checkpoints = 0
        self.commit([files.seen()])
        for path in ("root.a", "root.b", "root.c.`1`"):
            self.commit([records.StorageGroupSet(path)])
        self.commit([FIRST])

    def open(self, home):
        return Engine.open(
            home,
            clock=lambda: self.now,
            monotonic=lambda: self.spent,
            options=self.options,
            background=False,
        )

    # -- changes --

    def expect(self, work, ops_of_tree):
        """Run what the engine does; it must accept and refuse as the model."""
        try:
            after = ops_of_tree()
        except model.Rejected:
            before = self.engine.newest_commit
            with pytest.raises(TsferryError):
                work()
            assert self.engine.newest_commit == before
            return
        ts = work()
        if ts is None or ts == self.versions.stamps[-1]:  # nothing was to be done
            assert view.of_model(after) == view.of_model(self.versions.newest)
            return
        self.versions.append(ts, stamped(after, ts))

    def commit(self, ops):
        self.expect(lambda: self.engine.commit(ops), lambda: self.versions.after(ops, PENDING))

    @rule(ops=st.lists(operations, min_size=1, max_size=3))
    def commits(self, ops):
        self.commit(ops)

    @rule(op=operations)
    def commits_one(self, op):
        self.commit([op])

    @precondition(lambda self: self.versions.newest.series)
    @rule(data=st.data())
    def changes_what_is_there(self, data):
        """Operations on series that there are, in one commit or several."""
        there = sorted(self.versions.newest.series)
        ops = []
        for _ in range(data.draw(st.integers(1, 3), label="operations")):
            path = model.text(data.draw(st.sampled_from(there), label="series"))
            ops.append(data.draw(on_series(path), label="operation"))
        if data.draw(st.booleans(), label="in one commit"):
            self.commit(ops)
        else:
            for op in ops:
                self.commit([op])

    @precondition(lambda self: self.versions.newest.series)
    @rule(data=st.data(), change=changes)
    def alters_what_is_there(self, data, change):
        there = sorted(self.versions.newest.series)
        nodes = data.draw(st.sampled_from(there), label="series")
        alias = self.versions.newest.series[nodes].alias
        if alias is not None and data.draw(st.booleans(), label="by its alias"):
            nodes = (*nodes[:-1], alias)
        self.alter(model.text(nodes), change)

    @rule(path=paths, change=changes)
    def alters(self, path, change):
        self.alter(path, change)

    def alter(self, path, change):
        def altered():
            tree = self.versions.after([], PENDING)
            nodes = tree.find(model.nodes_of(path))
            model.need(nodes, "is no series")
            row = ALTER[type(change)](tree.series[nodes], change)
            own = model.text(nodes)
            ops = [records.TagsSet(own, dict(row.tags), dict(row.attributes))]
            if row.alias != tree.series[nodes].alias:
                ops.append(records.AliasSet(own, row.alias))
            return self.versions.after(ops, PENDING)

        def work():
            self.engine.alter(path, change)
            return self.engine.newest_commit

        self.expect(work, altered)

    @rule(
        device=st.sampled_from(DEVICES),
        series=st.dictionaries(
            st.sampled_from(NAMES), st.tuples(loaded_codes, times), min_size=1, max_size=3
        ),
        aligned=st.booleans(),
    )
    def loads_a_file(self, device, series, aligned):
        self.file += 1
        logical = files.path(f"{self.file}-1-0")
        columns = [each[0] for each in series.values()]
        loaded = records.LoadedDevice(
            device,
            aligned,
            list(series),
            bytes(each[0] for each in columns),
            bytes(each[1] for each in columns),
            bytes(each[2] for each in columns),
            [each[1] for each in series.values()],
        )
        load = files.load(logical, self.file, devices={device: (-5, 5)})
        made = records.SeriesLoaded(load.physical, [loaded])
        self.expect(
            lambda: self.engine.commit([load, made]), lambda: self.versions.after([made], PENDING)
        )

    @rule(seconds=st.sampled_from([0.001, 1.0, 300.0, 700.0, -50.0]))
    def clock_moves(self, seconds):
        self.now += seconds
        self.spent += max(seconds, 0.0)

    # -- what happens to the engine --

    @rule()
    def restarts(self):
        self.engine.close()
        self.engine = self.open(self.home)
        self.oldest = 0  # what the log still has can be asked about again

    @rule()
    def makes_a_checkpoint(self):
        self.engine.checkpoint()
        self.checkpoints += 1

    @rule()
    def forgets_history(self):
        self.engine.collect()

    @rule(data=st.data(), go_on=st.booleans())
    def loses_the_end_of_its_log(self, data, go_on):
        """A prefix of the commits comes back, at least all that stand before the cut."""
        copy = self.copy()
        log = max(copy.glob("mlog-*.tsf"), key=lambda path: int(path.stem.split("-")[1]))
        size = log.stat().st_size
        keep = data.draw(st.integers(0, size) | st.integers(max(0, size - 300), size), label="keep")
        os.truncate(log, keep)
        if data.draw(st.booleans(), label="tlog too"):
            tlog = copy / "tlog-1.tsf"
            os.truncate(tlog, data.draw(st.integers(0, tlog.stat().st_size), label="keep of tlog"))
        try:
            engine = self.open(copy)
        except DamagedError as error:
            self.names(copy, error)
            shutil.rmtree(copy)
            return
        newest = engine.newest_commit
        assert newest in self.versions.stamps
        if keep == size:
            assert newest == self.versions.stamps[-1]
        self.compare(engine, newest)
        if not go_on:
            engine.close()
            shutil.rmtree(copy)
            return
        self.engine.close()
        shutil.rmtree(self.home)
        self.engine, self.home, self.oldest = engine, copy, 0
        self.versions.cut_after(newest)

    @rule(data=st.data())
    def loses_its_newest_checkpoint(self, data):
        """The one before and the log give the same; both gone: an error, never an empty tree."""
        copy = self.copy()
        found = sorted(
            copy.glob("mtree.snapshot-*.tsf"), key=lambda path: int(path.stem.split("-")[1])
        )
        if not found:
            shutil.rmtree(copy)
            return
        spoil(found[-1], data)
        both = len(found) > 1 and data.draw(st.booleans(), label="both")
        if both:
            spoil(found[0], data)
        try:
            with self.open(copy) as engine:
                assert engine.newest_commit == self.versions.stamps[-1]
                self.compare(engine, engine.newest_commit)
        except DamagedError as error:
            self.names(copy, error)
            if len(found) > 1 and not both:
                raise
        shutil.rmtree(copy)

    def names(self, home, error):
        assert str(home) in error.message, error.message

    def copy(self):
        self.copies += 1
        copy = self.place / f"copy-{self.copies}"
        shutil.copytree(self.home, copy)
        return copy

    # -- questions --

    def compare(self, engine, ts):
        assert view.of_engine(engine) == view.of_model(self.versions.at(ts))

    @rule(data=st.data())
    def shows_the_past(self, data):
        ts = data.draw(st.sampled_from(self.versions.stamps), label="at")
        ts += data.draw(st.sampled_from([0, 0, 1, -1]), label="beside")
        if ts < self.engine.oldest_answerable:
            with pytest.raises(HistoryGoneError) as caught:
                execute(self.engine, "count timeseries", at=ts)
            assert caught.value.extra["oldest"] == self.engine.oldest_answerable
            return
        assert view.of_engine(self.engine, ts) == view.of_model(self.versions.at(ts))

    @rule(
        data=st.data(),
        pattern=st.sampled_from(PATTERNS) | paths | st.sampled_from([*DEVICES, "root"]),
    )
    def answers(self, data, pattern):
        ts = data.draw(st.none() | st.sampled_from(self.versions.stamps), label="at")
        if ts is not None and ts < self.engine.oldest_answerable:
            ts = None
        tree = self.versions.newest if ts is None else self.versions.at(ts)
        meant = model.pattern_of(pattern)
        where = data.draw(
            st.none()
            | st.tuples(
                st.sampled_from([*KEYS, "a1"]),
                st.sampled_from(["=", "contains"]),
                st.sampled_from(["v1", "v", "1"]),
            ),
            label="where",
        )
        heat = data.draw(st.booleans(), label="order by heat")
        limit = data.draw(st.none() | st.integers(1, 3), label="limit")
        offset = data.draw(st.integers(0, 2), label="offset")
        fetch = data.draw(st.sampled_from([1, 2, 1000]), label="fetch size")
        sql = f"show timeseries {pattern}"
        if where:
            sql += f" where {where[0]} {where[1]} '{where[2]}'"
        if heat:
            sql += " order by heat"
        if limit is not None:
            sql += f" limit {limit}"
        sql += f" offset {offset}"
        try:
            expected = tree.show(meant, where, heat=heat, limit=limit, offset=offset)
        except model.Rejected:
            with pytest.raises(TsferryError):
                list(execute(self.engine, sql, at=ts))
            return
        found = [row[0] for row in execute(self.engine, sql, at=ts, fetch_size=fetch)]
        assert found == [model.text(nodes) for nodes in expected], sql
        self.counts(pattern, meant, ts, tree)

    def counts(self, pattern, meant, ts, tree):
        def ask(sql):
            return [tuple(row) for row in execute(self.engine, sql, at=ts)]

        assert ask(f"count timeseries {pattern}") == [(len(tree.selected(meant)),)]
        assert ask(f"count devices {pattern}") == [(len(tree.devices(meant)),)]
        by_level = tree.count_by_level(meant, 2)
        assert ask(f"count timeseries {pattern} group by level=2") == [
            (model.text(nodes), by_level[nodes]) for nodes in sorted(by_level)
        ]
        assert [row[0] for row in ask(f"show devices {pattern}")] == [
            model.text(nodes) for nodes in tree.devices(meant)
        ]
        assert [row[0] for row in ask(f"show child paths {pattern}")] == [
            model.text(nodes) for nodes in tree.children(meant)
        ]

    @invariant()
    def shows_what_was_committed(self):
        assert self.engine.newest_commit == self.versions.stamps[-1]
        self.compare(self.engine, self.versions.stamps[-1])

    @invariant()
    def history_only_moves_on_and_not_too_far(self):
        oldest = self.engine.oldest_answerable
        assert oldest >= self.oldest
        self.latest = max(self.latest, self.now)
        assert oldest <= max(self.oldest, from_seconds(self.latest - self.options.history))
        self.oldest = oldest

    @invariant()
    def memory_is_a_function_of_what_lives(self):
        with self.engine.reading() as state:
            found = state.schema.memory.used
        assert found == view.memory_of(self.versions.newest)

    def teardown(self):
        if hasattr(self, "engine"):
            self.engine.close()
            shutil.rmtree(self.place)


PENDING = (1 << 63) - 1
"""Stands for the timestamp of a commit until the engine has given it."""


def stamped(tree, ts):
    """The tree with the timestamp that its newest commit got."""
    from dataclasses import replace

    for table in (tree.series, tree.groups):
        for key, row in table.items():
            if row.created == PENDING:
                table[key] = replace(row, created=ts)
    return tree


def spoil(file, data):
    content = bytearray(file.read_bytes())
    if data.draw(st.booleans(), label="cut"):
        del content[data.draw(st.integers(0, len(content) - 1), label="at") :]
    else:
        at = data.draw(st.integers(0, len(content) - 1), label="at")
        content[at] ^= data.draw(st.sampled_from([1, 0x80, 0xFF]), label="bits")
    file.write_bytes(content)


SchemaAgainstModel.TestCase.settings = settings(
    max_examples=tiers.examples(25),
    stateful_step_count=50 if tiers.is_long() else 25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestSchemaAgainstModel = SchemaAgainstModel.TestCase
