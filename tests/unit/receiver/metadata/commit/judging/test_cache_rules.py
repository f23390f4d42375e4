"""Cache slots: a version follows the one before, and the past of them is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import HistoryGoneError, RefusedCommitError
from receiver.metadata.sql.executing import execute
from receiver.metadata.state.tables.place_tables import cache_slots
from receiver.placement.slot_map import owners_of

ONE, TWO = "1" * 32, "2" * 32


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path) as made:
        made.commit(
            [records.NodeRegistered(each, "remote", each[0], each, 1) for each in (ONE, TWO)]
        )
        yield made


def slots(version: int, **weights: int) -> records.CacheSlotsSet:
    named = {{"one": ONE, "two": TWO}[name]: size for name, size in weights.items()}
    nodes, owners = owners_of(named)
    return records.CacheSlotsSet(version, nodes, [named[each] for each in nodes], owners)


def shown(engine: Engine, at: int | None = None) -> list[tuple]:
    asked = "show cache slots" if at is None else f"show cache slots at {at}"
    return [tuple(row)[1:5] for row in execute(engine, asked)]


def test_of_two_that_were_made_of_the_same_version_the_first_counts(engine: Engine):
    engine.commit([slots(1, one=10)])
    with pytest.raises(RefusedCommitError, match="version 1"):
        engine.commit([slots(1, two=10)])
    with pytest.raises(RefusedCommitError):
        engine.commit([slots(3, two=10)])
    assert shown(engine) == [("1", 1024, 10, 1)]
    engine.commit([slots(2)])
    assert shown(engine) == []


@pytest.mark.parametrize(
    "wrong",
    [
        records.CacheSlotsSet(1, [ONE], [10], b"\0\0" * 1023),
        records.CacheSlotsSet(1, [ONE], [10], b"\0\0" * 1023 + b"\0\1"),
        records.CacheSlotsSet(1, [ONE], [0], b"\0\0" * 1024),
        records.CacheSlotsSet(1, [ONE, ONE], [1, 1], b"\0\0" * 1024),
        records.CacheSlotsSet(1, [ONE], [1, 1], b"\0\0" * 1024),
        records.CacheSlotsSet(1, ["3" * 32], [1], b"\0\0" * 1024),
        records.CacheSlotsSet(1, [], [], b"\0\0" * 1024),
    ],
)
def test_slots_that_are_none_are_refused(engine: Engine, wrong: records.CacheSlotsSet):
    with pytest.raises(RefusedCommitError):
        engine.commit([wrong])


def test_versions_come_back_from_the_log_and_from_a_checkpoint(tmp_path: Path, engine: Engine):
    first = engine.commit([slots(1, one=10)])
    engine.commit([slots(2, one=10, two=10)])
    before = shown(engine)
    assert [row[2:] for row in before] == [(10, 2), (10, 2)]
    assert sum(row[1] for row in before) == 1024
    assert shown(engine, first) == [("1", 1024, 10, 1)]
    engine.checkpoint()
    engine.close()
    with Engine.open(tmp_path) as again:
        assert shown(again) == before
        assert shown(again, first) == [("1", 1024, 10, 1)]


def test_what_is_no_longer_known_of_the_past_is_said(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cache_slots, "_VERSIONS", 2)
    made = [engine.commit([slots(number, one=number)]) for number in range(1, 4)]
    assert shown(engine, made[1])[0][2] == 2
    with pytest.raises(HistoryGoneError):
        shown(engine, made[0])
