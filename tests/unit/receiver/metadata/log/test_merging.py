"""A replay that takes commits together gives the state of one that does not."""

import random

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.log import replay
from receiver.metadata.log.replay import Merged
from receiver.metadata.model import records
from tests.support.schema_commits import everything, series


@pytest.mark.parametrize("seed", range(4))
def test_taking_commits_together_changes_nothing(tmp_path, monkeypatch, seed):
    chance = random.Random(seed)
    home = tmp_path / "schema"
    with Engine.open(home, background=False) as engine:
        engine.commit([records.StorageGroupSet("root.t")])
        free = {(device, name) for device in range(12) for name in range(40)}
        for _ in range(400):
            device, name = chance.choice(sorted(free))
            free.discard((device, name))
            parent = f"root.t.x{device % 3}.d{device}"
            what = chance.random()
            taken = 40 - sum(1 for each, _ in free if each == device)
            if what < 0.05 and taken > 1:
                engine.commit([records.SeriesDeleted(f"{parent}.*")])
                free |= {(device, each) for each in range(40)}
            elif what < 0.1:
                engine.commit([series(parent, f"s{name}", tags=[{"k": str(name)}])])
            else:
                engine.commit([series(parent, f"s{name}")])
        expected = everything(engine)
    with Engine.open(home, background=False) as engine:
        assert everything(engine) == expected
    monkeypatch.setattr(Merged, "takes", lambda self, commit: False)
    with Engine.open(home, background=False) as engine:
        assert everything(engine) == expected


def test_what_is_held_back_is_bounded(monkeypatch):
    monkeypatch.setattr(replay, "_MOST", 3)
    merged = Merged()
    commits = [records.Commit(n, [series("root.t.d", f"s{n}")]) for n in range(1, 6)]
    assert [merged.takes(each) for each in commits] == [True, True, True, False, False]


@pytest.mark.parametrize(
    "commit",
    [
        records.Commit(5, [series("root.t.d", "s", aliases=["a"])]),
        records.Commit(5, [series("root.t.d", "s", aligned=True)]),
        records.Commit(5, [series("root.t.d", "s", props=[{"a": "b"}])]),
        records.Commit(5, [series("root.t.d", "s", tags=[{"a": "b"}])], 24),
        records.Commit(5, [series("root.t.d", *(f"s{n}" for n in range(17)))]),
        records.Commit(5, [series("root.t.d", "s"), series("root.t.e", "s")]),
        records.Commit(5, [records.StorageGroupSet("root.t")]),
    ],
)
def test_what_says_more_than_a_series_is_applied_by_itself(commit):
    assert not Merged().takes(commit)
