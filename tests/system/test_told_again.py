"""Deletion files reach a receiver that has lost them, and never come behind their file."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common import wire
from common.wire import InventoryEntry
from receiver.config import ReceiverConfig
from receiver.metadata.model import records
from receiver.metadata.state.state import State
from receiver.node import Node
from sender.plan.next_round import Known
from sender.round.task_run import TaskRun
from sender.send.calls import Client
from tests.support.centre import Centre
from tests.support.edge import Edge
from tests.support.scripted_receiver import ScriptedReceiver
from tests.support.tsfile_bytes import resource, vstr
from tests.system.sender.test_rounds import call


def line(edge: Edge, time: int) -> bytes:
    return f"DELETION,{edge.sg}.d1.s1,9223372036854775807,{time},{time}\n".encode()


def mods(edge: Edge, path: str, time: int) -> bytes:
    content = line(edge, time)
    (edge.data / f"{path}.mods").write_bytes(content)
    return content


def opened(centre: Centre) -> Node:
    """The node of a centre that is stopped."""
    return Node.open(ReceiverConfig(schema_dir=centre.root / "schema", data_dirs=(centre.data,)))


def known(centre: Centre, edge: Edge, path: str) -> list[bytes]:
    """Deletions that a centre, stopped for it, has of a file."""
    centre.stop()
    with opened(centre) as node, node.engine.reading() as state:
        row = state.file_table.held(edge.uuid, path)
        assert row is not None
        return [each.content for each in state.deletion_table.of_file(row.physical)]


def test_a_new_receiver_is_told_all(centre, make_edge):
    edge = make_edge(centre.start())
    path = edge.write(1)
    content = mods(edge, path, 1003)
    edge.round()
    centre.stop()
    shutil.rmtree(centre.root / "schema")
    shutil.rmtree(centre.data)
    centre.data.mkdir()
    centre.start()
    edge.round()
    edge.round()
    assert known(centre, edge, path) == [content]


def test_a_receiver_from_a_copy_is_told_what_it_lost(centre, make_edge, tmp_path):
    edge = make_edge(centre.start())
    path = edge.write(1)
    edge.round()
    centre.stop()
    shutil.copytree(centre.root, tmp_path / "copy")
    centre.start()
    content = mods(edge, path, 1003)
    edge.round()
    assert known(centre, edge, path) == [content]
    shutil.rmtree(centre.root)
    shutil.copytree(tmp_path / "copy", centre.root)
    centre.start()
    edge.round()
    assert known(centre, edge, path) == [content]


def test_other_content_beside_the_same_deletion_file_has_it_too(centre, make_edge):
    edge = make_edge(centre.start())
    path = edge.write(1)
    content = mods(edge, path, 1003)
    edge.round()
    edge.write(1, points=20)
    edge.round()
    assert known(centre, edge, path) == [content]


def test_what_was_deleted_there_comes_back_with_its_deletions(centre, make_edge):
    edge = make_edge(centre.start())
    path = edge.write(1)
    content = mods(edge, path, 1003)
    edge.round()
    centre.stop()
    with opened(centre) as node:
        with node.engine.reading() as state:
            row = state.file_table.held(edge.uuid, path)
        assert row is not None
        node.engine.commit([records.FileDeleted(row.physical, "operator")])
    centre.start()
    assert call(edge.write_config(), "resync", "--deleted").returncode == 0
    assert known(centre, edge, path) == [content]


def test_where_a_partition_is_cut_each_file_has_its_deletions_with_it(centre, make_edge):
    edge = make_edge(centre.start(), task_max_files=1)
    paths = [edge.write(number) for number in (1, 2)]
    for path in paths:
        mods(edge, path, 1003)
    assert edge.round().exit_code == 0
    centre.stop()
    with opened(centre) as node, node.engine.reading() as state:
        for path in paths:
            row = state.file_table.held(edge.uuid, path)
            assert row is not None
            (deletions,) = state.deletion_table.of_file(row.physical)
            assert deletions.created == row.created


def test_a_receiver_that_takes_no_deletion_files_gets_no_file_that_has_one(tmp_path: Path):
    with ScriptedReceiver() as receiver:
        edge = Edge(tmp_path / "edge", receiver.url)
        mods(edge, edge.write(1), 1003)
        other = edge.write(2)
        assert edge.round().waiting == 1
        assert edge.listed == [other]


def test_a_deletion_file_without_a_whole_record_holds_nothing_up(centre, make_edge):
    edge = make_edge(centre.start())
    path = edge.write(1)
    (edge.data / f"{path}.mods").write_bytes(b"DELETION,root.x")
    report = edge.round()
    assert (report.sent, report.error) == (1, None)
    content = mods(edge, path, 1003)
    assert edge.round().error is None
    assert known(centre, edge, path) == [content]


def test_what_a_receiver_did_not_take_is_told_again(centre, make_edge, monkeypatch):
    edge = make_edge(centre.start())
    path = edge.write(1)
    edge.round()
    content = mods(edge, path, 1003)
    conclude = TaskRun._conclude

    def not_taken(run: TaskRun, answer: wire.TaskAnswer) -> None:
        conclude(run, msgspec.structs.replace(answer, untold=[path]))

    with monkeypatch.context() as patch:
        patch.setattr(TaskRun, "_conclude", not_taken)
        assert edge.round().tasks
    with monkeypatch.context() as patch:  # both sides would see that it is there after all
        patch.setattr(Known, "comparable", False)
        assert edge.round().tasks
    assert edge.round().quiet
    assert known(centre, edge, path) == [content]


def test_of_shared_deletions_a_file_is_told_its_own_part_behind_its_own(centre, make_edge):
    edge = make_edge(centre.start())

    def record(time: int) -> bytes:
        return b"\x01" + struct.pack(">qq", time, time) + vstr(f"{edge.sg}.d1.s1")

    files = [edge.write(number) for number in (1, 2, 3)]
    ranges = {f"{edge.sg}.d1": (1000, 3009)}
    at = (edge.data / files[0]).parent / "0-1.mods2"
    for path, begin in zip(files, (0, len(record(0)), None), strict=True):
        name = None if begin is None else str(at)
        (edge.data / f"{path}.resource").write_bytes(resource(ranges, name, begin or 0))
    (edge.data / f"{files[1]}.mods2").write_bytes(record(2009))
    at.write_bytes(record(1001) + record(2002))
    assert edge.round().exit_code == 0
    with at.open("ab") as file:
        file.write(record(2003) + record(9)[:5])
    assert edge.round().exit_code == 0
    assert edge.round().quiet
    centre.stop()
    with opened(centre) as node, node.engine.reading() as state:
        told = [_told(state, edge, path) for path in files]
    both = record(2002) + record(2003)
    assert told == [record(1001) + both, record(2009) + both, b""]


def _told(state: State, edge: Edge, path: str) -> bytes:
    row = state.file_table.held(edge.uuid, path)
    assert row is not None
    return b"".join(each.content for each in state.deletion_table.of_file(row.physical))


def compared(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry a comparison in full."""
    found: list[None] = []
    original = Client.inventory

    def inventory(self: Client, *, of: str | None = None) -> Iterator[InventoryEntry]:
        found.append(None)
        return original(self, of=of)

    monkeypatch.setattr(Client, "inventory", inventory)
    return found


def settled(edge: Edge, comparisons: list[None]) -> None:
    """After a few rounds both sides agree by their sums, and nothing is left to tell."""
    for _ in range(3):
        assert edge.round().error is None
    comparisons.clear()
    edge.round()
    assert comparisons == []


def test_two_names_of_a_content_with_other_deletions_are_not_compared_each_round(
    centre, make_edge, monkeypatch
):
    comparisons = compared(monkeypatch)
    edge = make_edge(centre.start())
    one = edge.write(1)
    edge.round()
    two = one.replace("-1-0-0.", "-2-0-0.")
    for end in ("", ".resource"):
        shutil.copy(edge.data / f"{one}{end}", edge.data / f"{two}{end}")
    edge.round()
    said = [mods(edge, path, 1003 + at) for at, path in enumerate((one, two))]
    settled(edge, comparisons)
    for at, path in enumerate((one, two)):
        said.append(line(edge, 1005 + at))
        with (edge.data / f"{path}.mods").open("ab") as file:
            file.write(said[-1])
    settled(edge, comparisons)
    (content,) = known(centre, edge, one)
    assert sorted(content.splitlines(keepends=True)) == sorted(said)


def test_a_deletion_file_that_is_written_anew_is_told_and_takes_nothing_back(
    centre, make_edge, monkeypatch
):
    comparisons = compared(monkeypatch)
    edge = make_edge(centre.start())
    path = edge.write(1)
    where = edge.data / f"{path}.mods"
    before = mods(edge, path, 1003) + line(edge, 1004)
    where.write_bytes(before)
    edge.round()
    where.write_bytes(line(edge, 1005))  # shorter
    settled(edge, comparisons)
    report = edge.round()
    assert [each.file for each in report.kept_deletions] == [path]
    with where.open("ab") as file:
        file.write(line(edge, 1006))
    settled(edge, comparisons)
    where.write_bytes(b"".join(line(edge, time) for time in range(1006, 1003, -1)))  # as long
    settled(edge, comparisons)
    (content,) = known(centre, edge, path)
    assert content.startswith(before + line(edge, 1005) + line(edge, 1006))
    assert content.endswith(where.read_bytes())


def test_a_resource_that_names_another_shared_deletion_file_tells_what_that_says(centre, make_edge):
    """A database makes a new one where the old one has grown, and lets the resources name it."""
    edge = make_edge(centre.start())
    path = edge.write(1)
    folder, ranges = (edge.data / path).parent, {f"{edge.sg}.d1": (1000, 1009)}

    def record(time: int) -> bytes:
        return b"\x01" + struct.pack(">qq", time, time) + vstr(f"{edge.sg}.d1.s1")

    contents = (record(1001), record(1001) + record(1002))
    for name, content in zip(("0-1.mods2", "0-2.mods2"), contents, strict=True):
        (folder / name).write_bytes(content)
        (edge.data / f"{path}.resource").write_bytes(resource(ranges, name, 0))
        assert edge.round().exit_code == 0
        assert edge.round().quiet
    assert [each.path.text for each in edge.free(dry_run=True).freed] == [path]
    assert b"".join(known(centre, edge, path)) == contents[1]
