"""Whoever looks at a directory beside the running server sees one committed state, always."""

from __future__ import annotations

import shutil
import threading

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.log import recovering
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from tests.support.metadata import A, seen
from tests.support.schema_commits import HISTORY, everything, series

BOUND = 60


def test_a_reader_beside_checkpoints_and_removals_sees_whole_commits_in_their_order(tmp_path):
    """Each commit sets a label, a key and a tag to the same number: none is seen alone."""
    home = tmp_path / "schema"
    problems, stop = [], threading.Event()
    seen_by: tuple[list[int], ...] = ([], [])
    with Engine.open(home, options=EngineOptions(history=0.0), background=False) as engine:
        engine.commit([seen(label="0"), records.StorageGroupSet("root.t"), series("root.t.d", "s")])

        def write(number):
            engine.commit(
                [
                    seen(label=f"{number}"),
                    records.KeysWritten([], {"n": f"{number}"}),
                    records.TagsSet("root.t.d.s", {"n": f"{number}"}, {"a": f"{number}"}),
                ]
            )

        def look(seen_numbers):
            is_last = False
            while not is_last:
                is_last = stop.is_set()
                with Engine.read_only(home) as reader, reader.reading() as state:
                    row = state.schema.series.describe(
                        state.schema.series.find(("root", "t", "d", "s"))
                    )
                    found = {
                        state.senders[A].label,
                        state.keys.load("n"),
                        *reader.tags_of(row.tags_at)[0].values(),
                        *reader.tags_of(row.tags_at)[1].values(),
                    }
                if len(found) != 1:
                    problems.append(found)
                seen_numbers.append(int(found.pop()))

        write(1)
        readers = [threading.Thread(target=look, args=(each,)) for each in seen_by]
        for reader in readers:
            reader.start()
        for number in range(2, 60):
            write(number)
            engine.collect()
            engine.checkpoint()
        stop.set()
        for reader in readers:
            reader.join(BOUND)
            assert not reader.is_alive()
    assert not problems
    for each in seen_by:
        assert each == sorted(each)
        assert each[-1] == 59, "what was committed before it looked"


def test_a_server_that_is_faster_than_whoever_looks_is_not_taken_for_damage(tmp_path, monkeypatch):
    """Behind each listing it takes a checkpoint, and lets go of what that replaces."""
    home, left = tmp_path / "schema", list(range(8))
    with Engine.open(home, options=EngineOptions(history=0.0), background=False) as engine:
        for ops in HISTORY:
            engine.commit(ops)
        engine.checkpoint()

        def outrun(listing):
            def listed(tree):
                found = listing(tree)
                if left:
                    engine.commit([seen(label=f"{left.pop()}")])
                    engine.collect()
                    engine.checkpoint()
                return found

            return listed

        for name in ("segments", "checkpoints"):
            monkeypatch.setattr(recovering, name, outrun(getattr(recovering, name)))
        with Engine.read_only(home) as reader:
            assert everything(reader) == everything(engine)
    assert not left


@pytest.mark.parametrize("vanishing", ["mtree", "mlog"])
def test_files_that_vanish_under_a_reader_make_it_look_again(tmp_path, monkeypatch, vanishing):
    """Between the listing and the opening, the server has taken a checkpoint and tidied up."""
    home, later = tmp_path / "schema", tmp_path / "later"
    options = EngineOptions(history=0.0)
    with Engine.open(home, options=options, background=False) as engine:
        for number, ops in enumerate(HISTORY):
            engine.commit(ops)
            if number in (2, 5):
                engine.checkpoint()
    shutil.copytree(home, later)
    with Engine.open(later, options=options, background=False) as engine:
        engine.collect()
        engine.checkpoint()
        engine.commit([seen(label="on")])
        engine.checkpoint()
        expected = everything(engine)
    name = "open_checkpoint" if vanishing == "mtree" else "open_segments"
    real, moved = getattr(recovering, name), []

    def late(*args, **more):
        if not moved:
            moved.append(True)
            for each in home.glob("m*.tsf"):
                each.unlink()
            shutil.copytree(later, home, dirs_exist_ok=True)
        return real(*args, **more)

    monkeypatch.setattr(recovering, name, late)
    with Engine.read_only(home) as reader:
        assert reader.uuid == engine.uuid
        monkeypatch.undo()
        assert moved
        assert everything(reader) == expected
