"""A storage group goes with its loaded files only if that is said, and many only by their list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import (
    GroupDeletionHeldError,
    StorageGroupHoldsFilesError,
    StorageGroupMissingError,
)
from receiver.metadata.sql.executing import execute
from receiver.metadata.state.table_rows import FileState
from tests.support.metadata import load, path, physical, seen


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "e") as engine:
        engine.commit([seen()])
        execute(engine, "set storage group to root.t, root.u, root.`/db`")
        yield engine


def name(number: int) -> str:
    return physical(path(f"{number}-{number}-0"), number)


def loaded(engine: Engine, number: int, *devices: str) -> None:
    spans = dict.fromkeys(devices or ("root.t.d1",), (number * 10, number * 10 + 9))
    engine.commit([load(path(f"{number}-{number}-0"), number, devices=spans, content=str(number))])


def states(engine: Engine) -> dict[str, FileState]:
    with engine.reading() as state:
        return {row.physical: row.state for row in state.files.values()}


def groups(engine: Engine) -> list[str]:
    return [str(row[0]) for row in execute(engine, "show storage group")]


def test_one_that_holds_files_is_refused_with_their_number_and_size(engine: Engine) -> None:
    loaded(engine, 1)
    loaded(engine, 2)
    before = engine.newest_commit
    for statement in ("delete storage group root.t", "delete storage group root.u, root.t"):
        with pytest.raises(StorageGroupHoldsFilesError, match="2 loaded files of 202 bytes") as why:
            execute(engine, statement)
        assert why.value.extra["files"] == 2
        assert why.value.extra["bytes"] == 202
    with pytest.raises(StorageGroupHoldsFilesError):
        engine.delete_storage_group("root.t")
    assert engine.newest_commit == before
    assert execute(engine, "delete storage group root.u").message == "storage groups deleted"


def test_with_data_the_files_go_in_the_same_commit(engine: Engine) -> None:
    loaded(engine, 1)
    loaded(engine, 2, "root.u.d1")
    done = execute(engine, "DELETE storage group root.t WITH DATA")
    assert done.message == "storage groups deleted; with 1 loaded file of 101 bytes"
    assert states(engine) == {name(1): FileState.DELETED, name(2): FileState.LIVE}
    assert "root.t" not in groups(engine)
    with engine.reading() as state:
        row = state.files[name(1)]
    assert (row.changed, row.reason) == (done.commit, "operator")
    with pytest.raises(StorageGroupMissingError):
        execute(engine, "delete storage group root.t with data")


def test_files_in_every_state_count_and_none_comes_back(engine: Engine) -> None:
    for number in (1, 2, 3):
        loaded(engine, number)
    engine.commit([records.FileRetired(name(1), 0), records.FileRetired(name(3), 0)])
    engine.commit([records.FileSuperseded(name(1), [name(2)])])
    engine.commit([records.FileQuarantined(name(3), "rot")])
    with pytest.raises(StorageGroupHoldsFilesError, match="3 loaded files"):
        execute(engine, "delete storage group root.t")
    execute(engine, "delete storage group root.t with data")
    assert set(states(engine).values()) == {FileState.DELETED}
    execute(engine, "set storage group to root.t")
    execute(engine, "delete storage group root.t")  # what is deleted does not count


def test_the_devices_decide_and_not_the_directory(engine: Engine) -> None:
    loaded(engine, 1, "root.u.d1")  # below sequence/root.t
    execute(engine, "delete storage group root.t")
    with pytest.raises(StorageGroupHoldsFilesError):
        execute(engine, "delete storage group root.u")
    loaded(engine, 2, "/db/t1:a")
    with pytest.raises(StorageGroupHoldsFilesError, match="1 loaded file of"):
        execute(engine, "delete storage group root.`/db`")


def test_a_file_of_several_groups_is_not_taken_along(engine: Engine) -> None:
    loaded(engine, 1, "root.t.d1", "root.u.d1")
    with pytest.raises(
        StorageGroupHoldsFilesError, match=r"devices of other storage groups.*1-1-0"
    ):
        execute(engine, "delete storage group root.t with data")
    execute(engine, "delete storage group root.t, root.u with data")
    assert states(engine) == {name(1): FileState.DELETED}


def test_a_ttl_that_goes_with_it_is_told(engine: Engine) -> None:
    execute(engine, "set ttl to root.t 5000")
    execute(engine, "set ttl to root.u 7000")
    loaded(engine, 1)
    assert execute(engine, "delete storage group root.u").message == (
        "storage groups deleted; root.u had a TTL of 7000 ms"
    )
    assert execute(engine, "delete storage group root.t with data").message == (
        "storage groups deleted; with 1 loaded file of 101 bytes; root.t had a TTL of 5000 ms"
    )


def test_many_files_go_only_by_the_digest_of_that_very_list(engine: Engine) -> None:
    for number in range(10):
        loaded(engine, number)
    with pytest.raises(GroupDeletionHeldError, match="10 loaded files") as held:
        execute(engine, "delete storage group root.t with data")
    digest = held.value.extra["digest"]
    assert f"with data '{digest}'" in held.value.message
    loaded(engine, 10)
    with pytest.raises(GroupDeletionHeldError, match="11 loaded files") as other:
        execute(engine, f"delete storage group root.t with data '{digest}'")
    digest = other.value.extra["digest"]
    execute(engine, f"delete storage group root.t with data '{digest}'")
    assert set(states(engine).values()) == {FileState.DELETED}


def test_without_a_guard_any_number_goes(engine: Engine) -> None:
    for number in range(12):
        loaded(engine, number)
    done = execute(engine, "delete storage group root.t with data", held_from=None)
    assert "12 loaded files" in (done.message or "")


def test_a_file_that_is_loaded_meanwhile_is_looked_at_too(engine: Engine, monkeypatch) -> None:
    real = Engine.commit

    def overtaken(self, ops, guards=()):
        if any(isinstance(each, records.StorageGroupDeleted) for each in ops):
            monkeypatch.undo()
            loaded(self, 1)
        return real(self, ops, guards)

    monkeypatch.setattr(Engine, "commit", overtaken)
    with pytest.raises(StorageGroupHoldsFilesError):
        execute(engine, "delete storage group root.t")
    assert states(engine) == {name(1): FileState.LIVE}


def test_what_is_done_is_there_after_a_restart(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "e") as engine:
        engine.commit([seen()])
        execute(engine, "set storage group to root.t")
        loaded(engine, 1)
        execute(engine, "delete storage group root.t with data")
    with Engine.open(tmp_path / "e") as engine:
        assert groups(engine) == []
        assert states(engine) == {name(1): FileState.DELETED}
