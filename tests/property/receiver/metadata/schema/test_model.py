"""Any order of operations, collections and restarts: the columns answer as dictionaries do."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from receiver.metadata.model.paths import Nodes, parse_pattern
from receiver.metadata.schema import Schema
from tests.property.receiver.metadata.schema.model import Group, Model, Series
from tests.support import tiers

NODES = st.sampled_from(["a", "b", "d1", "d2", "s1", "s2", "x y", "ä", "a\0b", "a\0", "1"])
DEVICES = st.lists(NODES, min_size=1, max_size=3).map(lambda nodes: ("root", *nodes))
NAMES = st.lists(
    st.one_of(NODES, st.integers(0, 30).map(lambda i: f"m{i}")),
    min_size=1,
    max_size=16,
    unique=True,
)
KEYS = st.sampled_from(["k", "unit", "s1"])
VALUES = st.sampled_from(["v", "vv", "xv", "a", "", "ÄÖ"])
TAGS = st.dictionaries(KEYS, VALUES, max_size=3)
CODES = st.integers(0, 10)
PATTERNS = st.lists(
    st.sampled_from(["*", "**", "a", "d1", "s1", "s*", "m1*", "`a\0b`"]), min_size=1, max_size=4
).map(lambda nodes: parse_pattern(".".join(["root", *nodes])))
LASTS = st.one_of(st.none(), st.integers(-3, 12))


class SchemaMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.schema = Schema()
        self.model = Model()
        self.ts = 10
        self.offset = 0
        self.horizon = 0
        self.open = False
        # Something to alter from the first step on.
        ts = self.tick()
        self.schema.set_storage_group(("root", "a"), ts)
        self.model.groups["root", "a"] = Group(ts, ts)
        names = ["s1", "s2", *(f"m{i}" for i in range(8))]
        codes = bytes(10)
        self.schema.create_series(("root", "a", "d1"), names, codes, codes, codes, ts)
        for name in names:
            self.model.series["root", "a", "d1", name] = Series(0, 0, 0, False, ts, changed=ts)
        self.done()

    # -- commits --

    def tick(self) -> int:
        """The timestamp of the commit that is being made; operations may share one."""
        if not self.open:
            self.ts += 2
        return self.ts

    @rule(more=st.booleans())
    def end_commit(self, more: bool) -> None:
        self.open = more

    def done(self) -> None:
        self.model.keep(self.ts)

    # -- operations --

    @rule(group=DEVICES)
    def set_storage_group(self, group: Nodes) -> None:
        model = self.model
        above = any(group[:depth] in model.groups for depth in range(2, len(group)))
        if above or group in model.nodes() or len(group) < 2:
            return
        ts = self.tick()
        self.schema.set_storage_group(group, ts)
        model.groups[group] = Group(ts, ts)
        self.done()

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data())
    def delete_storage_group(self, data: st.DataObject) -> None:
        group = data.draw(st.sampled_from(sorted(self.model.groups)))
        ts = self.tick()
        below = [path for path in self.model.series if path[: len(group)] == group]
        assert self.schema.delete_storage_group(group, ts) == len(below)
        for path in below:
            del self.model.series[path]
            self.model.ended[path] = ts
        del self.model.groups[group]
        self.done()

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data(), ttl=st.one_of(st.none(), st.integers(0, 1000)))
    def set_ttl(self, data: st.DataObject, ttl: int | None) -> None:
        group = data.draw(st.sampled_from(sorted(self.model.groups)))
        ts = self.tick()
        self.schema.set_ttl(group, ttl, ts)
        self.model.groups[group].ttl = ttl
        self.model.groups[group].changed = ts
        self.done()

    def _device(self, data: st.DataObject) -> Nodes | None:
        """A device in a storage group, with no series in its way."""
        model = self.model
        known = sorted(model.devices())
        if known and data.draw(st.booleans()):
            return data.draw(st.sampled_from(known))
        group = data.draw(st.sampled_from(sorted(model.groups)))
        device = group + tuple(data.draw(st.lists(NODES, max_size=2)))
        ways = [device[:depth] for depth in range(2, len(device) + 1)]
        if any(way in model.series or model.by_alias(way) for way in ways):
            return None
        return device

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data(), names=NAMES, aligned=st.booleans(), extras=st.booleans())
    def create(self, data: st.DataObject, names: list[str], aligned: bool, extras: bool) -> None:
        model, device = self.model, self._device(data)
        if device is None:
            return
        names = [name for name in names if not model.taken((*device, name))]
        if not names:
            return
        many = len(names)
        codes = st.lists(CODES, min_size=many, max_size=many).map(bytes)
        types, encodings, compressions = data.draw(st.tuples(codes, codes, codes))
        aliases: list[str | None] = [None] * many
        tags: list[dict[str, str]] = [{}] * many
        props: list[dict[str, str]] = [{}] * many
        offsets = [-1] * many
        if extras:
            tags = data.draw(st.lists(TAGS, min_size=many, max_size=many))
            props = data.draw(st.lists(TAGS, min_size=many, max_size=many))
            alias = data.draw(st.sampled_from(["al", "m2", "s2"]))
            if not model.taken((*device, alias)) and alias not in names:
                aliases[0] = alias
            offsets = [self.offset + i for i in range(many)]
            self.offset += many
        ts = self.tick()
        self.schema.create_series(
            device, names, types, encodings, compressions, ts, aligned=aligned,
            aliases=aliases if extras else None, tags=tags if extras else None,
            props=props if extras else None, offsets=offsets if extras else None,
        )  # fmt: skip
        siblings = model.devices().get(device)
        aligned = model.series[siblings[0]].aligned if siblings else aligned
        for i, name in enumerate(names):
            model.series[*device, name] = Series(
                types[i], encodings[i], compressions[i], aligned, ts, aliases[i], dict(tags[i]),
                offsets[i], None, dict(props[i]), ts,
            )  # fmt: skip
        self.done()

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data(), names=NAMES, aligned=st.booleans(), whole=st.booleans())
    def load(self, data: st.DataObject, names: list[str], aligned: bool, whole: bool) -> None:
        model, devices = self.model, self.model.devices()
        if whole and devices:
            device = data.draw(st.sampled_from(sorted(devices)))
            names = [path[-1] for path in devices[device]]
            names = names[data.draw(st.integers(0, 1)) :] or names
        else:
            found = self._device(data)
            if found is None:
                return
            device = found
        names = [
            name
            for name in names
            if (*device, name) in model.series or not model.taken((*device, name))
        ]
        if not names:
            return
        same = data.draw(LASTS)
        lasts = [same if whole else data.draw(LASTS) for _ in names]
        types = bytes(range(len(names)))
        ts = self.tick()
        made = self.schema.load_series(
            device, names, types, types, types, lasts, ts, aligned=aligned
        )
        if device in devices:
            aligned = model.series[devices[device][0]].aligned
        for i, name in enumerate(names):
            series = model.series.get((*device, name))
            if series is None:
                made -= 1
                series = Series(i, i, i, aligned, ts, changed=ts)
                model.series[*device, name] = series
            last = lasts[i]
            if last is not None and (series.heat is None or last > series.heat):
                series.heat = last
        assert made == 0
        self.done()

    @rule(pattern=PATTERNS)
    def delete(self, pattern) -> None:
        ts = self.tick()
        paths = self.model.match(pattern)
        assert self.schema.delete_series(pattern, ts) == len(paths)
        for path in paths:
            del self.model.series[path]
            self.model.ended[path] = ts
        self.done()

    @precondition(lambda self: self.model.series)
    @rule(data=st.data(), alias=st.one_of(st.none(), NODES))
    def set_alias(self, data: st.DataObject, alias: str | None) -> None:
        path = data.draw(st.sampled_from(sorted(self.model.series)))
        series = self.model.series[path]
        if alias == series.alias:
            return
        if alias is not None and self.model.taken((*path[:-1], alias)):
            return
        series.changed = self.tick()
        self.schema.set_alias(path, alias, self.ts)
        series.alias = alias
        self.done()

    @precondition(lambda self: self.model.series)
    @rule(data=st.data(), tags=TAGS)
    def set_tags(self, data: st.DataObject, tags: dict[str, str]) -> None:
        path = data.draw(st.sampled_from(sorted(self.model.series)))
        series = self.model.series[path]
        series.changed = self.tick()
        self.offset += 1
        self.schema.set_tags(path, tags, self.offset, self.ts)
        series.tags, series.offset = dict(tags), self.offset
        self.done()

    # -- what nobody may notice --

    @rule(back=st.integers(0, 20), budget=st.integers(1, 50))
    def collect(self, back: int, budget: int) -> None:
        self.horizon = max(self.horizon, self.ts - back)
        self.schema.collect(self.horizon, budget)
        if budget % 2:
            self.schema.index.purge()
        if budget % 3 == 0:
            self.schema._release_names()

    @rule()
    def restart(self) -> None:
        sections = dict(self.schema.freeze().sections())
        again = Schema.thaw({name: memoryview(part) for name, part in sections.items()})
        assert dict(again.freeze().sections()) == sections
        self.schema = again

    # -- questions --

    def _times(self, data: st.DataObject) -> int | None:
        return data.draw(
            st.one_of(st.none(), st.integers(self.horizon, max(self.ts, self.horizon)))
        )

    @rule(data=st.data())
    def every_series_is_as_it_was(self, data: st.DataObject) -> None:
        at = self._times(data)
        model, schema = self.model.at(at), self.schema
        rows = schema.match_series(parse_pattern("root.**"), at)
        found = {row.nodes: row for row in schema.series_rows(rows, at)}
        assert list(found) == sorted(model.series)
        for path, series in model.series.items():
            row = found[path]
            assert (row.type, row.encoding, row.compression) == (
                series.type, series.encoding, series.compression,
            )  # fmt: skip
            assert (row.alias, row.tags_at, row.heat) == (
                series.alias, series.offset, series.heat,
            )  # fmt: skip
            assert (row.props, row.created) == (series.props, series.created)
            assert (row.device, row.aligned) == (path[:-1], series.aligned)
            assert row.storage_group == model.group_of(path)
            assert schema.find_series(path, at) == row.row
            assert schema.tags_of(row.row, at) == series.tags
            if series.alias is not None:
                assert schema.find_series((*path[:-1], series.alias), at) == row.row
                assert schema.find_series((*path[:-1], series.alias), at, alias=False) == -1
            if at is None:
                assert schema.changed(path) == series.changed

    @rule(data=st.data(), pattern=PATTERNS, after=st.one_of(st.none(), DEVICES))
    def patterns_find_what_matches(self, data: st.DataObject, pattern, after) -> None:
        at = self._times(data)
        model, schema = self.model.at(at), self.schema
        expected = model.match(pattern)
        rows = schema.match_series(pattern, at)
        assert [schema.nodes_of(row) for row in rows] == expected
        assert sorted(schema.select(pattern, at).tolist()) == sorted(rows)
        assert schema.count_series(pattern, at) == len(rows)
        later = [path for path in expected if after is None or path > after]
        page = schema.match_series(pattern, at, after, 3)
        assert [schema.nodes_of(row) for row in page] == later[:3]
        nodes = sorted(path for path in model.nodes() if pattern.matches(path))
        assert schema.match_nodes(pattern, at) == nodes
        assert schema.count_nodes(pattern, at) == len(nodes)
        devices = {path: own for path, own in model.devices().items() if pattern.matches(path)}
        found = schema.match_devices(pattern, at)
        assert [(row.nodes, row.series) for row in found] == sorted(
            (path, len(own)) for path, own in devices.items()
        )
        assert all(row.aligned == model.series[devices[row.nodes][0]].aligned for row in found)
        assert schema.count_devices(pattern, at) == len(devices)
        for level in range(4):
            groups: dict[Nodes, int] = {}
            for path in expected:
                if len(path) > level:
                    groups[path[: level + 1]] = groups.get(path[: level + 1], 0) + 1
            assert schema.count_by_level(pattern, level, at) == sorted(groups.items())

    @rule(data=st.data(), key=KEYS, value=VALUES, pattern=st.one_of(st.none(), PATTERNS))
    def tags_find_what_has_them(self, data: st.DataObject, key, value, pattern) -> None:
        at = self._times(data)
        model, schema = self.model.at(at), self.schema
        meant = {
            path: series.tags
            for path, series in model.series.items()
            if pattern is None or pattern.matches(path)
        }
        has = sorted(path for path, tags in meant.items() if tags.get(key) == value)
        rows = schema.find_tagged(key, value, pattern, at)
        assert [schema.nodes_of(row) for row in rows] == has
        has = sorted(path for path, tags in meant.items() if key in tags and value in tags[key])
        rows = schema.find_tagged(key, value, pattern, at, contains=True)
        assert [schema.nodes_of(row) for row in rows] == has
        assert schema.tag_keys(pattern, at) == sorted({k for tags in meant.values() for k in tags})
        values = {tags[key] for tags in meant.values() if key in tags}
        assert schema.tag_values(key, pattern, at) == sorted(values)

    @rule(data=st.data(), count=st.one_of(st.none(), st.integers(0, 5)))
    def the_hottest_come_first(self, data: st.DataObject, count: int | None) -> None:
        at = self._times(data)
        model, schema = self.model.at(at), self.schema
        heats = {path: series.heat for path, series in model.series.items()}
        expected = sorted(
            heats, key=lambda path: (1 if (own := heats[path]) is None else 0, -(own or 0), path)
        )
        rows = schema.by_heat(schema.select(parse_pattern("root.**"), at), at, count)
        assert [schema.nodes_of(row) for row in rows] == expected[:count]

    @rule(data=st.data(), path=DEVICES)
    def single_paths(self, data: st.DataObject, path: Nodes) -> None:
        at = self._times(data)
        model, schema = self.model.at(at), self.schema
        assert schema.kind_at(path, at) == model.kind(path)
        assert schema.storage_group_of(path, at) == model.group_of(path)
        below = any(len(each) > len(path) and each[: len(path)] == path for each in model.groups)
        assert schema.has_storage_group_below(path, at) is below
        assert schema.has_storage_group_below(("root",), at) is bool(model.groups)
        device = schema.device(path, at)
        assert (device is not None) is (path in model.devices())
        groups = {row.nodes: row for row in schema.storage_groups(at)}
        assert list(groups) == sorted(model.groups)
        for each, group in model.groups.items():
            row = groups[each]
            assert (row.ttl, row.created, row.changed) == (group.ttl, group.created, group.changed)
            assert schema.ttl(each, at) == group.ttl
        assert schema.series_count == len(self.model.series)
        assert schema.device_count == len(self.model.devices())
        assert schema.storage_group_count == len(self.model.groups)
        for each, ts in self.model.ended.items():
            if each not in self.model.series:
                assert schema.changed(each) in (ts, 0)
                assert schema.changed(each) == ts or ts <= self.horizon

    @invariant()
    def the_estimate_is_that_of_a_schema_made_anew(self) -> None:
        """It is a function of what lives: made at once or over a long history."""
        if not hasattr(self, "schema") or self.ts % 6:
            return
        anew = Schema()
        for group in self.model.groups:
            anew.set_storage_group(group, 1)
        for path, series in self.model.series.items():
            code = bytes([series.type])
            anew.create_series(
                path[:-1], [path[-1]], code, code, code, 1,
                aliases=[series.alias], tags=[series.tags], props=[series.props],
            )  # fmt: skip
        assert anew.memory() == self.schema.memory()


SchemaMachine.TestCase.settings = settings(
    max_examples=tiers.examples(60),
    stateful_step_count=40,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
)
TestSchemaAgainstDictionaries = SchemaMachine.TestCase


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is done otherwise for many is met with few."""
    monkeypatch.setattr("receiver.metadata.schema.order._SORTED_FROM", 4)
    monkeypatch.setattr("receiver.metadata.schema.tree._CACHED", 4)
    monkeypatch.setattr("receiver.metadata.schema.names._CACHED", 4)
    monkeypatch.setattr("receiver.metadata.schema.names._TEXTS", 4)
    monkeypatch.setattr("receiver.metadata.schema.tagindex._LOOSE", 3)
    monkeypatch.setattr("receiver.metadata.schema.walk._BUDGET", 6)
    monkeypatch.setattr("receiver.metadata.schema.listing._SORTED_AT_ONCE", 3)
    monkeypatch.setattr("receiver.metadata.schema.hashindex._SMALLEST", 4)
