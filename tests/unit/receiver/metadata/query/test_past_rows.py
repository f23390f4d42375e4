"""What held at a time is told of packed files as of others, while commits and packing go on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.query.past_files import files_at
from receiver.metadata.query.row_source import Look
from receiver.metadata.query.seen_files import seen_files
from receiver.metadata.sql.executing import execute
from receiver.metadata.state.table_rows import FileState
from tests.support.file_life import FileLife
from tests.support.metadata import load, path, seen

Model = dict[int, tuple[list[Any], list[Any]]]
OPTIONS = EngineOptions(checkpoint_entries=1 << 40, checkpoint_rest=1e9)


@pytest.fixture
def engine(tmp_path: Path):
    with Engine.open(tmp_path / "schema", options=OPTIONS, background=False) as engine:
        yield engine


class Life(FileLife):
    """Random commits for an engine, and what readers saw behind each."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.model: Model = {}
        super().__init__(seed, forgets=False, looks=True)

    @property
    def state(self):
        with self.engine.reading() as state:
            return state

    def do(self, *ops):
        at = self.engine.commit(list(ops))
        rows = sorted(self.state.files.values(), key=lambda row: row.physical)
        visible = [(row.rank, row.paths) for row in rows if row.visible]
        held = [(row.rank, row.paths) for row in rows if row.state is FileState.QUARANTINED]
        self.model[at] = visible, held


def told(engine: Engine, at: int) -> tuple[list[Any], list[Any]]:
    past = files_at(engine, at)
    assert len(past.visible) == len([*past.visible])
    return (
        [(row.rank, row.paths) for row in past.visible],
        [(row.rank, row.paths) for row in past.quarantined],
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_each_time_is_told_exactly_while_commits_and_checkpoints_go_on(engine: Engine, seed: int):
    life = Life(engine, seed)
    wrong: list[int] = []
    done = threading.Event()

    def ask() -> None:
        asked = 0
        while not done.is_set() or not asked:
            for at in [*life.model][asked % 7 :: 7]:
                if told(engine, at) != life.model[at]:
                    wrong.append(at)
            asked += 1

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for number in range(120):
            life.commit()
            if number % 25 == 24:
                engine.checkpoint()
    finally:
        done.set()
        thread.join()
    assert not wrong
    assert len(life.state.files.packed) > 5
    for at, expected in life.model.items():
        assert told(engine, at) == expected


def test_commits_go_on_in_the_middle_of_an_answer_and_are_not_in_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    life = Life(engine, 7)
    for _ in range(60):
        life.commit()
    engine.checkpoint()
    at = engine.newest_commit
    life.commit()
    read = engine.log_since

    def log_since(ts: int):
        life.commit()
        for commit in read(ts):
            life.commit()
            yield commit

    monkeypatch.setattr(engine, "log_since", log_since)
    past = files_at(engine, at)
    monkeypatch.undo()
    life.commit()
    engine.checkpoint()
    assert [(row.rank, row.paths) for row in past.visible] == life.model[at][0]
    assert told(engine, at) == life.model[at]


def test_a_look_behind_a_path_and_within_directories_is_that_part_of_all(engine: Engine):
    life = Life(engine, 11)
    for number in range(90):
        life.commit()
        if number in (40, 80):
            engine.checkpoint()
    at = [*life.model][50]
    every = [row.physical for row in files_at(engine, at).visible]
    assert len(every) > 10
    for after in (*every, "", "sequence/root.t/0/1/2", "z"):
        behind = [row.physical for row in files_at(engine, at).visible.behind(after)]
        assert behind == [each for each in every if each > after]
    for ts in (at, engine.newest_commit):
        seen = [row.physical for row in files_at(engine, ts).visible]
        look = Look(engine, ts)
        inside = seen_files(look, within="sequence/root.t/0/1".__eq__)
        found = [each.row.physical for each in inside]
        assert found == [each for each in seen if each.startswith("sequence/root.t/0/1/")]
        assert found
        assert [each.row.physical for each in seen_files(look)] == seen


def test_a_pattern_finds_packed_files_of_the_past_by_their_storage_groups(engine: Engine):
    engine.commit([seen()])
    ops = [load(path(sg="root.a"), 1), load(path(sg="root.b"), 2, devices={"root.b.d": (1, 2)})]
    at = engine.commit(ops)
    engine.checkpoint()
    engine.commit([load(path("2-1-0", sg="root.b"), 3)])

    def shown(pattern: str) -> list[str]:
        return [row[0] for row in execute(engine, f"show files {pattern} at {at}")]

    assert shown("root.b") == shown("root.b.*") == [ops[1].physical]
    assert shown("root.a") == [ops[0].physical]
    assert shown("") == [each.physical for each in ops]
    assert shown("root.c") == []
