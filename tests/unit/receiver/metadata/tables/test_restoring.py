"""Tables put together again from a checkpoint are as they were."""

import pytest

from common.wire import Result
from receiver.metadata.engine import Engine
from receiver.metadata.log import checkpoints
from receiver.metadata.log.freeze import FrozenState
from receiver.metadata.model import records
from receiver.metadata.model.errors import NewerLogError
from tests.support.checkpointing import as_is, frozen_sections, thawed
from tests.support.committing import do, fresh
from tests.support.metadata import A, B, load, path, physical, plain, seen, token
from tests.support.old_checkpoint import in_version_1


def restored(state, form):
    """As a start does it."""
    return thawed(form(frozen_sections(state)))


@pytest.mark.parametrize("form", [as_is, in_version_1])
def test_all_that_a_caller_sees_comes_back(form):
    state = fresh()
    do(state, seen(), seen(B), token(), token("t2", role="sender", sender=A))
    names = [path(f"{each}-1-0") for each in range(8)]
    for tag, name in enumerate(names):
        do(state, load(name, tag, devices={"root.t.d1": (1, 9), f"root.t.d{tag}": None}))
    phys = [physical(name, tag) for tag, name in enumerate(names)]
    do(state, records.FileDeleted(phys[3], "gone"), records.FileDeleted(phys[1], "expired"))
    do(state, records.FileQuarantined(phys[4], "bad"), records.FileQuarantined(phys[2], "bad"))
    do(state, records.FileRetired(phys[5]))
    do(state, records.FileQuarantined(phys[6], "bad"), records.FileRetired(phys[6]))
    do(state, load(names[1], 9))
    do(state, records.QuarantinePut(A, path(), "01", 1, False, "no space"))
    do(state, records.TaskDone(A, "01" * 16, [records.FileOutcome("p", Result.LOADED)]))
    do(state, records.TaskDone(A, "02" * 16, []), records.OwnerSet("root.t.d0", B, "why"))
    do(state, records.FilesAdopted(A, "03" * 16, "/old"), records.TaskDone(A, "03" * 16, []))
    do(state, records.SchemaSynced(A, "log", 5, 1, [("1,x", "no")], 1))
    for each in (phys[0], phys[3], phys[7]):
        do(state, records.FileUploaded(each, 1, state.files[each].size, "etag=00"))
    do(state, records.FileForgotten(phys[3]))
    do(state, records.FileUploaded(phys[7], 1, state.files[phys[7]].size, "", "00"))
    do(state, records.LetGoNoted(A, names[3], "00" * 16, 1, "77" * 16))
    do(state, records.LetGoNoted(A, names[2], "00" * 16, 1), records.LetGoEnded(A, names[2]))
    do(state, records.FileVerified([phys[0], phys[5], phys[7]]))
    do(state, records.ResourceNoted(phys[7], records.ResourceMeta(8, "00")))
    do(state, records.NodeRegistered(A, "directory", "/1", "h", 1), records.NodeDraining(A, True))
    do(state, *(records.CopyDoubted(A, "c0" * 16, phys[each]) for each in (0, 2, 4)))
    do(state, records.CopyDoubted(A, "c0" * 16, phys[2], doubted=False))
    moved = state.files[phys[0]]
    do(state, records.FileMoved(phys[0], A, "/2", moved.size, moved.md5))
    assert state.files[phys[0]].data_dir == "/2"
    other = restored(state, form)
    assert plain(other) == plain(state)
    assert other.file_table.verified(A) == state.file_table.verified(A) == 3
    assert other.schema_positions == state.schema_positions
    assert other.sender_table.of_directory(state.senders[A].directory) == state.senders[A]
    for each in (state, other):  # and both go on alike
        do(each, records.FileRestored(phys[2]), records.FileDeleted(phys[0], "operator"))
        do(each, records.TokenRevoke("t1"), records.QuarantineDrop(A, path(), "01"))
        assert [(row.path, row.deleted) for row in each.let_go] == [(names[3], 1)]
        assert [row.path for row in each.let_go.of_tail("77" * 16)] == [names[3]]
        assert [*each.doubted_table.rows] == [(A, phys[0]), (A, phys[4])]
        assert each.doubted_table.of_tablet(A, "c0" * 16)
    assert plain(other) == plain(state)


@pytest.mark.parametrize("form", [as_is, in_version_1])
def test_what_is_gone_at_the_edge_comes_back_in_its_order(form):
    state = fresh()
    do(state, seen())
    names = [path(f"{each}-1-0") for each in range(5)]
    phys = [physical(name, tag) for tag, name in enumerate(names)]
    looks = records.OriginLooks("ef" * 16, 1, 2, 3, 4, physical(path(), 3))
    origin = records.FileOrigin("cd" * 16, path("9-9-0"), [looks])
    for tag, name in enumerate(names):
        do(state, load(name, tag, origin=origin if tag == 4 else None))
    do(state, *map(records.FileRetired, phys[:3]))
    for each in (phys[2], phys[0]):
        do(state, records.FileSuperseded(each, [phys[3]]))
    other = restored(state, form)
    for each in (state, other):
        table = each.file_table
        assert list(table.gone.superseded()) == [phys[2], phys[0]]
        assert (table.gone.retired_files, len(table.gone.where())) == (1, 1)
        assert table.gone.retired_bytes == table.gone.superseded_bytes / 2 == 101
        assert {row.physical for row in table.resting_on(phys[3])} == {phys[2], phys[0]}
        forwarded = table.forwarded(A, names[4])
        assert forwarded is not None
        assert forwarded.physical == phys[4]


def test_a_row_of_the_previous_version_is_not_registered():
    state = fresh()
    do(state, seen())
    do(state, load())
    assert [row.registered for row in state.files.values()] == [False]


def test_a_checkpoint_of_version_1_opens_and_a_release_of_then_refuses_version_2(
    tmp_path, monkeypatch
):
    with Engine.open(tmp_path) as engine:
        engine.commit(
            [seen(), load(), load(path("2-1-0"), 2), records.FileRetired(physical(path(), 1))]
        )
        with engine.reading() as state:
            before = plain(state)
        sections = FrozenState.sections
        with monkeypatch.context() as old:
            old.setattr(checkpoints, "_VERSION", 1)
            old.setattr(
                FrozenState,
                "sections",
                lambda frozen: iter(in_version_1(dict(sections(frozen))).items()),
            )
            engine.checkpoint()
    for _ in range(2):
        with Engine.open(tmp_path) as engine:
            with engine.reading() as state:
                assert plain(state)["files"] == before["files"]
                assert plain(state)["listed"][A] == before["listed"][A]
                assert plain(state)["inventories"][A] == before["inventories"][A]
            engine.commit([seen(B)])
            engine.checkpoint()
    monkeypatch.setattr(checkpoints, "_VERSION", 1)
    with pytest.raises(NewerLogError, match="has version 2, written by a newer tsferry"):
        Engine.open(tmp_path)
