"""Any order of operations, collections and restarts: the columns answer as dictionaries do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from receiver.metadata.model.errors import NotATagError
from receiver.metadata.model.paths import Nodes, format_path, parse_pattern
from receiver.metadata.model.types import COMPRESSION_TEXTS, ENCODING_TEXTS, TYPE_TEXTS
from receiver.metadata.query import ordering, searching
from receiver.metadata.query import questions as ask
from receiver.metadata.query.questions import Query
from receiver.metadata.schema import Schema
from tests.property.receiver.metadata.schema.model import Group, Model, Series
from tests.support import schema_asked as asked
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
PAGES = st.sampled_from([1, 2, 3, 1000])
LIMITS = st.one_of(st.none(), st.integers(0, 5))
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
        self.schema.changes.set_storage_group(("root", "a"), ts)
        self.model.groups["root", "a"] = Group(ts, ts)
        names = ["s1", "s2", *(f"m{i}" for i in range(8))]
        codes = bytes(10)
        self.schema.changes.create_series(("root", "a", "d1"), names, codes, codes, codes, ts)
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
        self.schema.changes.set_storage_group(group, ts)
        model.groups[group] = Group(ts, ts)
        self.done()

    @precondition(lambda self: self.model.groups)
    @rule(data=st.data())
    def delete_storage_group(self, data: st.DataObject) -> None:
        group = data.draw(st.sampled_from(sorted(self.model.groups)))
        ts = self.tick()
        below = [path for path in self.model.series if path[: len(group)] == group]
        assert self.schema.changes.delete_storage_group(group, ts) == len(below)
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
        self.schema.changes.set_ttl(group, ttl, ts)
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
        self.schema.changes.create_series(
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
        made = self.schema.changes.load_series(
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
        assert self.schema.changes.delete_series(pattern, ts) == len(paths)
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
        self.schema.changes.set_alias(path, alias, self.ts)
        series.alias = alias
        self.done()

    @precondition(lambda self: self.model.series)
    @rule(data=st.data(), tags=TAGS)
    def set_tags(self, data: st.DataObject, tags: dict[str, str]) -> None:
        path = data.draw(st.sampled_from(sorted(self.model.series)))
        series = self.model.series[path]
        series.changed = self.tick()
        self.offset += 1
        self.schema.changes.set_tags(path, tags, self.offset, self.ts)
        series.tags, series.offset = dict(tags), self.offset
        self.done()

    # -- what nobody may notice --

    @rule(back=st.integers(0, 20), budget=st.integers(1, 50))
    def collect(self, back: int, budget: int) -> None:
        self.horizon = max(self.horizon, self.ts - back)
        self.schema.collector.collect(self.horizon, budget)
        if budget % 2:
            self.schema.index.purge()
        if budget % 3 == 0:
            self.schema.collector.release_names()

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

    def _ask(self, data: st.DataObject, query: Query, at: int | None) -> list[tuple[Any, ...]]:
        """The answer, in pages of any size."""
        return asked.rows(self.schema, query, at, data.draw(PAGES))

    @rule(data=st.data())
    def all_is_as_it_was(self, data: st.DataObject) -> None:
        for at in (None, self._times(data)):
            model = self.model.at(at)
            heats = {path: series.heat for path, series in model.series.items()}
            hottest = sorted(heats, key=lambda path: (*_cold_last(heats[path]), path))
            found = self._ask(data, ask.ShowTimeseries(by_heat=True), at)
            assert [row[0] for row in found] == [format_path(path) for path in hottest]
            for query, count in (
                (ask.CountTimeseries(), len(model.series)),
                (ask.CountDevices(), len(model.devices())),
                (ask.CountStorageGroups(), len(model.groups)),
                (ask.CountNodes(level=2), len(model.passed(ask.ALL, 2))),
            ):
                assert self._ask(data, query, at) == [(count,)]

    @rule(data=st.data())
    def every_series_is_as_it_was(self, data: st.DataObject) -> None:
        at = self._times(data)
        model, schema = self.model.at(at), self.schema
        found = self._ask(data, ask.ShowTimeseries(), at)
        assert [row[0] for row in found] == [format_path(path) for path in sorted(model.series)]
        for path, shown in zip(sorted(model.series), found, strict=True):
            series = model.series[path]
            labels = ({"offset": str(series.offset)}, {}) if series.offset >= 0 else ({}, {})
            assert shown[1:] == (
                series.alias, format_path(model.group_of(path)), TYPE_TEXTS[series.type],
                ENCODING_TEXTS[series.encoding], COMPRESSION_TEXTS[series.compression],
                *labels, series.heat, series.created,
            )  # fmt: skip
            row = schema.series.describe(schema.series.find(path, at), at)
            assert (row.nodes, row.path, row.device) == (path, shown[0], path[:-1])
            assert (row.type, row.props, row.aligned) == (
                series.type, series.props, series.aligned,
            )  # fmt: skip
            assert schema.series.heat(row.row, at) == series.heat
            assert schema.index.tags(row.row, at) == series.tags
            if series.alias is not None:
                assert schema.series.find((*path[:-1], series.alias), at) == row.row
                assert schema.series.find((*path[:-1], series.alias), at, alias=False) == -1
            if at is None:
                assert schema.series.changed(path) == series.changed

    @rule(data=st.data(), pattern=PATTERNS, after=st.one_of(st.none(), DEVICES))
    def patterns_find_what_matches(self, data: st.DataObject, pattern, after) -> None:
        at = self._times(data)
        model, schema = self.model.at(at), self.schema
        expected = model.meant(pattern)
        shown = self._ask(data, ask.ShowTimeseries(pattern=pattern), at)
        assert [row[0] for row in shown] == [format_path(path) for path in expected]
        assert self._ask(data, ask.CountTimeseries(pattern=pattern), at) == [(len(expected),)]
        limit, offset = data.draw(LIMITS), data.draw(st.integers(0, 4))
        part = ask.ShowTimeseries(pattern=pattern, limit=limit, offset=offset)
        end = None if limit is None else offset + limit
        assert self._ask(data, part, at) == shown[offset:end]
        later = [path for path in model.match(pattern) if after is None or path > after]
        page = schema.series.match(pattern, at, after, 3)
        assert [schema.tree.nodes(row) for row in page] == later[:3]

    @rule(data=st.data(), pattern=PATTERNS)
    def devices_are_those_that_match(self, data: st.DataObject, pattern) -> None:
        at = self._times(data)
        model, devices = self.model.at(at), self.model.at(at).devices()
        expected = model.meant_devices(pattern)
        found = self._ask(data, ask.ShowDevices(pattern=pattern), at)
        assert [(row[0], *row[1:4]) for row in found] == [
            (
                format_path(path), format_path(model.group_of(path)),
                model.series[devices[path][0]].aligned, len(devices[path]),
            )
            for path in expected
        ]  # fmt: skip
        assert self._ask(data, ask.CountDevices(pattern=pattern), at) == [(len(expected),)]

    @rule(data=st.data(), pattern=PATTERNS)
    def nodes_are_those_that_match(self, data: st.DataObject, pattern) -> None:
        at = self._times(data)
        model = self.model.at(at)
        children = model.children(pattern)
        found = self._ask(data, ask.ShowChildPaths(pattern=pattern), at)
        assert found == [(format_path(path), called) for path, called in children]
        names = self._ask(data, ask.ShowChildNodes(pattern=pattern), at)
        assert names == [(name,) for name in sorted({path[-1] for path, _ in children})]
        for level in range(5):
            count = self._ask(data, ask.CountNodes(pattern=pattern, level=level), at)
            assert count == [(len(model.passed(pattern, level)),)]
            groups = Counter(
                path[: level + 1] for path in model.meant(pattern) if len(path) > level
            )
            by_level = ask.CountTimeseries(pattern=pattern, level=level)
            assert self._ask(data, by_level, at) == [
                (format_path(path), count) for path, count in sorted(groups.items())
            ]

    @rule(data=st.data(), pattern=PATTERNS)
    def storage_groups_are_those_that_match(self, data: st.DataObject, pattern) -> None:
        at = self._times(data)
        model = self.model.at(at)
        expected = [(path, model.groups[path]) for path in model.meant_groups(pattern)]
        assert self._ask(data, ask.ShowStorageGroups(pattern=pattern), at) == [
            (format_path(path), group.ttl, group.created) for path, group in expected
        ]
        ttls = [(format_path(path), group.ttl) for path, group in expected]
        assert self._ask(data, ask.ShowTtl(pattern=pattern), at) == ttls
        assert self._ask(data, ask.ShowTtl(groups=(pattern, pattern)), at) == ttls
        count = self._ask(data, ask.CountStorageGroups(pattern=pattern), at)
        assert count == [(len(expected),)]

    @rule(
        data=st.data(),
        where=st.builds(ask.TagFilter, KEYS, VALUES, st.booleans()),
        pattern=st.one_of(st.just(ask.ALL), PATTERNS),
        by_heat=st.booleans(),
    )
    def tags_find_what_has_them(self, data: st.DataObject, where, pattern, by_heat) -> None:
        at = self._times(data)
        model = self.model.at(at)
        tags = {path: model.series[path].tags for path in model.meant(pattern)}
        has = [path for path in tags if _holds(tags[path].get(where.key), where)]
        if by_heat:
            has.sort(key=lambda path: _cold_last(model.series[path].heat))
        query = ask.ShowTimeseries(pattern=pattern, where=where, by_heat=by_heat)
        count = ask.CountTimeseries(pattern=pattern, where=where)
        by_level = ask.CountTimeseries(pattern=pattern, where=where, level=2)
        if not any(where.key in series.tags for series in model.series.values()):
            for each in (query, count, by_level):
                with pytest.raises(NotATagError):
                    self._ask(data, each, at)
        else:
            found = self._ask(data, query, at)
            assert [row[0] for row in found] == [format_path(path) for path in has]
            assert self._ask(data, count, at) == [(len(has),)]
            groups = Counter(path[:3] for path in has)
            assert self._ask(data, by_level, at) == [
                (format_path(path), count) for path, count in sorted(groups.items())
            ]
        keys = sorted({key for own in tags.values() for key in own})
        assert self._ask(data, ask.ShowTagKeys(pattern=pattern), at) == [(key,) for key in keys]
        pairs = sorted({pair for own in tags.values() for pair in own.items()})
        assert self._ask(data, ask.ShowTagValues(pattern=pattern), at) == pairs
        of_key = [pair for pair in pairs if pair[0] == where.key]
        query = ask.ShowTagValues(pattern=pattern, key=where.key)
        assert self._ask(data, query, at) == of_key

    @rule(data=st.data(), pattern=st.one_of(st.just(ask.ALL), PATTERNS), limit=LIMITS)
    def the_hottest_come_first(self, data: st.DataObject, pattern, limit: int | None) -> None:
        at = self._times(data)
        model = self.model.at(at)
        expected = model.meant(pattern)
        expected.sort(key=lambda path: _cold_last(model.series[path].heat))
        query = ask.ShowTimeseries(pattern=pattern, by_heat=True, limit=limit)
        found = [row[0] for row in self._ask(data, query, at)]
        assert found == [format_path(path) for path in expected[:limit]]

    @rule(data=st.data(), path=DEVICES)
    def single_paths(self, data: st.DataObject, path: Nodes) -> None:
        at = self._times(data)
        model, schema = self.model.at(at), self.schema
        assert schema.nodes.kind_at(path, at) == model.kind(path)
        assert schema.groups.of(path, at) == model.group_of(path)
        below = any(len(each) > len(path) and each[: len(path)] == path for each in model.groups)
        assert schema.groups.is_any_below(path, at) is below
        assert schema.groups.is_any_below(("root",), at) is bool(model.groups)
        device = schema.devices.find(path, at)
        assert (device is not None) is (path in model.devices())
        groups = {row.nodes: row for row in schema.groups.rows(at)}
        assert list(groups) == sorted(model.groups)
        for each, group in model.groups.items():
            row = groups[each]
            assert (row.ttl, row.created, row.changed) == (group.ttl, group.created, group.changed)
            assert schema.groups.ttl(each, at) == group.ttl
        assert schema.columns.series_count == len(self.model.series)
        assert schema.columns.device_count == len(self.model.devices())
        assert schema.columns.storage_group_count == len(self.model.groups)
        for each, ts in self.model.ended.items():
            if each not in self.model.series:
                assert schema.series.changed(each) in (ts, 0)
                assert schema.series.changed(each) == ts or ts <= self.horizon

    @invariant()
    def the_estimate_is_that_of_a_schema_made_anew(self) -> None:
        """It is a function of what lives: made at once or over a long history."""
        if not hasattr(self, "schema") or self.ts % 6:
            return
        anew = Schema()
        for group in self.model.groups:
            anew.changes.set_storage_group(group, 1)
        for path, series in self.model.series.items():
            code = bytes([series.type])
            anew.changes.create_series(
                path[:-1], [path[-1]], code, code, code, 1,
                aliases=[series.alias], tags=[series.tags], props=[series.props],
            )  # fmt: skip
        assert anew.memory.used == self.schema.memory.used


def _holds(value: str | None, where: ask.TagFilter) -> bool:
    if value is None:
        return False
    return where.value in value if where.contains else where.value == value


def _cold_last(heat: int | None) -> tuple[bool, int]:
    return heat is None, -(heat or 0)


SchemaMachine.TestCase.settings = settings(
    max_examples=tiers.examples(100),
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
    monkeypatch.setattr("receiver.metadata.schema.tree_columns.order._SORTED_FROM", 4)
    monkeypatch.setattr("receiver.metadata.schema.tree_columns.node_tree._CACHED", 4)
    monkeypatch.setattr("receiver.metadata.schema.tree_columns.name_table._CACHED", 4)
    monkeypatch.setattr("receiver.metadata.schema.tree_columns.name_table._TEXTS", 4)
    monkeypatch.setattr("receiver.metadata.schema.tree_columns.tagindex._LOOSE", 3)
    monkeypatch.setattr("receiver.metadata.schema.looked_up.pattern_walk._BUDGET", 6)
    monkeypatch.setattr("receiver.metadata.schema.tree_columns.hashindex._SMALLEST", 4)
    for module, name, value in (
        (searching, "_COLUMN", 5),
        (searching, "_SINGLE", 2),
        (searching, "_FEW", 3),
        (ordering, "_AHEAD", 4),
        (ordering, "_SORTED", 6),
        (ordering, "_SINGLE", 2),
        (ordering, "_HEATS", 3),
        (ordering, "_WALKED", {"leaf": 2, "node": 2, "device": 1}),
    ):
        monkeypatch.setattr(module, name, value)
