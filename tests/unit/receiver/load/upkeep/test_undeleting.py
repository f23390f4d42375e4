"""Deleted files that are brought back while their bytes stand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from common import wire
from common.names import FilePath
from receiver.metadata.model import records
from receiver.metadata.query.past_files import files_at
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.node import Node
from receiver.operator.stored.files import undelete_files
from receiver.operator.views.wire import UndeleteAnswer
from tests.support.node_world import Clock, Edge, World, fsck_of, path_of, tsfile

ALL = wire.Propagate.ALL
FILES = {path_of(number): tsfile(first=number * 100) for number in (1, 2)}


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    edge.round(FILES, propagate=ALL)
    return edge


def rows_of(node: Node) -> dict[str, FileRow]:
    with node.engine.reading() as state:
        return {row.path: row for row in state.files.values()}


def test_what_a_mirror_deleted_comes_back_as_retired_in_its_rank(edge: Edge) -> None:
    before = rows_of(edge.node)[path_of(1)]
    edge.round({}, [path_of(1)], propagate=ALL)
    gone = rows_of(edge.node)[path_of(1)]
    assert gone.state is FileState.DELETED
    at = edge.node.engine.newest_commit
    answer = undelete_files(edge.node.operator, [gone.physical])
    assert (answer.back, answer.failed) == ([gone.physical], [])
    back = rows_of(edge.node)[path_of(1)]
    assert (back.state, back.retired, back.deleted) == (FileState.RETIRED, True, 0)
    assert list(back.devices.ranges()) == list(before.devices.ranges())
    assert back.rank.last < gone.deleted
    assert [row.path for row in files_at(edge.node.engine, at).visible] == [path_of(2)]
    assert fsck_of(edge.node).found == []


def test_a_file_that_was_brought_back_may_be_its_senders_again(edge: Edge) -> None:
    edge.round({}, [path_of(1)], propagate=ALL)
    undelete_files(edge.node.operator, [rows_of(edge.node)[path_of(1)].physical])
    outcome = edge.round({path_of(1): FILES[path_of(1)]}, propagate=ALL)
    assert outcome[path_of(1)].result is wire.Result.ALREADY
    assert rows_of(edge.node)[path_of(1)].state is FileState.LIVE


def test_bytes_that_are_gone_or_bad_bring_nothing_back(edge: Edge, world: World) -> None:
    edge.round({}, list(FILES), propagate=ALL)
    one, two = (rows_of(edge.node)[path].physical for path in FILES)
    (world.data / one).unlink()
    content = bytearray((world.data / two).read_bytes())
    content[20] ^= 1
    (world.data / two).write_bytes(content)
    answer = undelete_files(edge.node.operator, [one, two, "sequence/root.sg/0/0/7-7-7.tsfile"])
    assert answer.back == []
    reasons = {each.physical: each.reason for each in answer.failed}
    assert "not on the disk" in reasons[one]
    assert "not those" in reasons[two]
    assert "no deleted file" in reasons["sequence/root.sg/0/0/7-7-7.tsfile"]
    assert {row.state for row in rows_of(edge.node).values()} == {FileState.DELETED}


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_file_comes_back_with_its_bytes_or_not_at_all_though_its_time_has_come(
    tmp_path, monkeypatch, comes_back: bool
) -> None:
    clock = Clock()
    world = World(tmp_path, clock=clock, keep_deleted=100.0, metadata={"history": 0.0})
    with world.still_node() as node:
        edge = Edge(node)
        edge.check()
        edge.round(FILES)
        edge.round({}, [path_of(1)], propagate=ALL)
        physical = rows_of(node)[path_of(1)].physical
        clock.now += 1000
        answers: list[UndeleteAnswer] = []
        thread = Thread(target=lambda: answers.append(undelete_files(node.operator, [physical])))
        reaper = node.load.reaper
        unlink, leaving = reaper._unlink, node.load.disks.leaving

        def at_its_turn(path: FilePath) -> bool:
            if thread.ident is None:
                thread.start()
                thread.join(0.3)
            return unlink(path)

        @contextmanager
        def before_its_turn() -> Iterator[None]:
            if thread.ident is None:
                monkeypatch.setattr(node.load.disks, "leaving", leaving)
                thread.start()
                thread.join(5)
            with leaving:
                yield

        if comes_back:
            monkeypatch.setattr(node.load.disks, "leaving", before_its_turn())
        else:
            monkeypatch.setattr(reaper, "_unlink", at_its_turn)
        reaper.run_once()
        thread.join(5)
        [answer] = answers
        stands = (world.data / physical).exists()
        known = path_of(1) in rows_of(node)
        assert (bool(answer.back), known, stands) == (comes_back,) * 3
        reaper.run_once()


def test_what_an_earlier_version_deleted_without_a_proof_comes_back(tmp_path) -> None:
    world = World(tmp_path)
    with world.still_node() as node:
        edge = Edge(node)
        edge.check()
        edge.round(FILES)
        physical = rows_of(node)[path_of(1)].physical
        node.engine.commit([records.FileDeleted(physical, "superseded")])
    with world.still_node() as node:
        node.load.reaper.run_once()
        row = rows_of(node)[path_of(1)]
        assert (row.state, row.retired) == (FileState.RETIRED, True)


def test_what_a_proof_left_out_stays_out(edge: Edge) -> None:
    edge.round({}, [path_of(1)])
    rows = rows_of(edge.node)
    one, two = rows[path_of(1)].physical, rows[path_of(2)].physical
    edge.node.engine.commit([records.FileSuperseded(one, [two])])
    edge.node.engine.commit([records.FileDeleted(one, "superseded")])
    edge.node.load.reaper.run_once()
    assert path_of(1) not in rows_of(edge.node), "its bytes were due, and it is forgotten"
