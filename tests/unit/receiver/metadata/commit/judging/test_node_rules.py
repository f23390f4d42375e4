"""Moves of files between data directories, as the engine takes and keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.metadata.state.tables.file_tables.directory_totals import DirectoryTotal
from tests.support.metadata import A, load, path, physical, seen

NODE = "a" * 32
NAME = physical(path(), 1)
RESOURCE = records.ResourceMeta(8, "00" * 16)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path) as engine:
        begin(engine)
        yield engine


def begin(engine: Engine) -> None:
    engine.commit([records.NodeRegistered(NODE, "directory", "/1", "h", 1)])
    engine.commit([records.NodeDraining(NODE, draining=True)])
    engine.commit([seen(), load(path(), 1)])


def moved(engine: Engine, **other: object) -> records.FileMoved:
    with engine.reading() as state:
        row = state.files[NAME]
    fields: dict[str, object] = {"size": row.size, "md5": row.md5, "resource": ""}
    fields |= {"physical": NAME, "node": NODE, "data_dir": "/2"} | other
    return records.FileMoved(**fields)  # type: ignore[arg-type]


def totals(engine: Engine) -> dict[str, DirectoryTotal]:
    with engine.reading() as state:
        table = state.file_table.by_directory
        return {name: table.of(name) for name in table.names()}


def test_a_move_changes_where_a_file_lies_and_nothing_else(engine: Engine):
    with engine.reading() as state:
        before = state.files[NAME]
    assert list(totals(engine)) == [before.data_dir]
    engine.commit([moved(engine)])
    with engine.reading() as state:
        after = state.files[NAME]
    assert (after.data_dir, after.changed) == ("/2", before.changed)
    assert totals(engine) == {"/2": DirectoryTotal(1, before.size, 1)}


@pytest.mark.parametrize("state", ["deleted", "quarantined", "retired"])
def test_what_readers_do_not_see_is_moved_too_and_not_counted(engine: Engine, state: str):
    change: records.Op = records.FileRetired(NAME)
    if state == "deleted":
        change = records.FileDeleted(NAME, "gone")
    elif state == "quarantined":
        change = records.FileQuarantined(NAME, "bad")
    engine.commit([change])
    engine.commit([moved(engine)])
    with engine.reading() as there:
        assert there.files[NAME].data_dir == "/2"
    assert list(totals(engine)) == (["/2"] if state == "retired" else [])


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"size": 5}, "has other bytes"),
        ({"md5": "ff" * 16}, "has other bytes"),
        ({"resource": "ff" * 16}, "has another resource"),
        ({"node": "b" * 32}, "is no directory that is drained"),
        ({"data_dir": "/1"}, "is no other directory"),
        ({"data_dir": ""}, "is no other directory"),
        ({"physical": physical(path(), 2)}, "there is no file"),
    ],
)
def test_a_move_of_what_is_not_as_it_was_copied_is_refused(
    engine: Engine, other: dict[str, object], why: str
):
    with pytest.raises(RefusedCommitError, match=why):
        engine.commit([moved(engine, **other)])


def test_a_move_off_a_node_that_is_not_drained_any_more_is_refused(engine: Engine):
    op = moved(engine)
    stay = records.NodeDraining(NODE, draining=False)
    with pytest.raises(RefusedCommitError, match="no directory that is drained"):
        engine.commit([stay, op])
    engine.commit([stay])
    with pytest.raises(RefusedCommitError, match="no directory that is drained"):
        engine.commit([op])
    engine.commit([records.NodeDraining(NODE, draining=True), records.NodeLost(NODE)])
    with pytest.raises(RefusedCommitError, match="no directory that is drained"):
        engine.commit([op])


def test_a_move_with_a_resource_that_is_not_the_one_of_now_is_refused(engine: Engine):
    op = moved(engine)
    noted = records.ResourceNoted(NAME, RESOURCE)
    with pytest.raises(RefusedCommitError, match="by this very commit"):
        engine.commit([noted, op])
    engine.commit([noted])
    with pytest.raises(RefusedCommitError, match="another resource"):
        engine.commit([op])
    engine.commit([moved(engine, resource=RESOURCE.md5)])
    engine.commit([moved(engine, resource=None, data_dir="/3")])


def test_a_checkpoint_and_the_log_have_files_where_they_were_moved(tmp_path: Path):
    with Engine.open(tmp_path) as engine:
        begin(engine)
        engine.commit([load(path("2-2-0"), 2)])
        engine.checkpoint()
        engine.commit([moved(engine)])
        assert len(totals(engine)) == 2
        told = totals(engine)
    with Engine.open(tmp_path) as engine:
        assert totals(engine) == told
        engine.checkpoint()
    with Engine.open(tmp_path) as engine:
        assert totals(engine) == told
        assert engine.newest_commit
        with engine.reading() as state:
            assert state.files[NAME].data_dir == "/2"
            assert state.files[NAME].sender == A
