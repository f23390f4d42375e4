"""Pages of a time of the past are of one look, which is let go of, and end with the history."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.model.errors import HistoryGoneError
from receiver.metadata.query.kept_past import KeptPast
from tests.support.metadata import load, path, seen


class Now:
    at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def engine(tmp_path: Path):
    options = EngineOptions(history=0, history_commits=2)
    with Engine.open(tmp_path / "schema", options=options, background=False) as engine:
        engine.commit([seen(), load(path("1-1-0"), 1)])
        yield engine


def test_the_next_page_is_of_the_same_look_until_nobody_asks_for_a_while(engine: Engine):
    clock = Now()
    kept = KeptPast(engine, clock)
    at = engine.newest_commit
    first = kept.files_at(at)
    engine.commit([load(path("2-1-0"), 2)])
    assert kept.files_at(at) is first
    clock.at += 19
    kept.forget()
    assert kept.files_at(at) is first
    clock.at += 21
    kept.forget()
    again = kept.files_at(at)
    assert again is not first
    assert [*again.visible] == [*first.visible]


def test_another_time_or_another_begin_is_another_look(engine: Engine):
    kept = KeptPast(engine, Now())
    first = engine.newest_commit
    assert len(kept.files_at(1 << 62).visible) == 1
    second = engine.commit([load(path("2-1-0"), 2)])
    assert len(kept.files_at(1 << 62).visible) == 2
    assert len(kept.files_at(second, first).visible) == 1
    assert len(kept.files_at(first).visible) == 1


def test_what_is_kept_does_not_outlive_the_history(engine: Engine):
    kept = KeptPast(engine, Now())
    at = engine.newest_commit
    kept.files_at(at)
    for number in range(2, 6):
        engine.commit([load(path(f"{number}-1-0"), number)])
    engine.commit([records.FileDeleted(load(path("1-1-0"), 1).physical, "operator")])
    engine.collect()
    assert at < engine.oldest_answerable
    with pytest.raises(HistoryGoneError):
        kept.files_at(at)
