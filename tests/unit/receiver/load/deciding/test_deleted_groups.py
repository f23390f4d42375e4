"""Files under way while their storage group is deleted: they come to be of no table."""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec
import pytest

from common import crash, wire
from common.digests import md5, xxh3_64
from common.errors import ForbiddenError
from receiver.metadata.sql.executing import execute
from receiver.node import Node
from receiver.operator.stored.files import list_files
from receiver.operator.views.load_wire import CentreLoadRequest
from receiver.operator.views.write_wire import StagedPart, WriteRequest
from receiver.transfer.receiving.partial import PartialUpload
from tests.support.node_world import Edge, World, path_of, plan_entry, results, tsfile

GONE = "delete storage group root.sg with data"


@pytest.fixture
def edge(node: Node) -> Edge:
    edge = Edge(node)
    edge.check()
    assert results(edge.round({path_of(1): tsfile(first=1)})) == {path_of(1): "loaded"}
    return edge


def live(node: Node) -> list[str]:
    return sorted(each.path for each in list_files(node.operator, state="live").files)


def under_way(edge: Edge, path: str, content: bytes) -> str:
    task = edge.start()
    assert [each.action for each in edge.plan(task, [plan_entry(path, content)])] == ["send"]
    assert [each.problem for each in edge.batch(task, {path: content})] == [None]
    return task


def test_a_file_under_way_for_a_group_that_is_deleted_is_held_and_goes_once_it_is_said(
    edge: Edge,
) -> None:
    path, content = path_of(2), tsfile(first=100)
    task = under_way(edge, path, content)
    execute(edge.node.engine, GONE)
    edge.end(task, {path: content})
    outcome = edge.outcome(task)[path]
    assert (outcome.result, outcome.hold) == (wire.Result.QUARANTINED, True), outcome
    assert "deleted" in (outcome.reason or "")
    assert live(edge.node) == []
    again = edge.start()  # the next round: not by itself
    [decision] = edge.plan(again, [plan_entry(path, content)])
    assert (decision.action, decision.hold) == (wire.Action.REFUSED, True)
    [decision] = edge.plan(again, [plan_entry(path, content, retry=True)])
    assert decision.action is wire.Action.SEND
    assert [each.problem for each in edge.batch(again, {path: content})] == [None]
    edge.end(again, {path: content})
    assert results(edge.outcome(again)) == {path: "loaded"}
    assert live(edge.node) == [path]


def test_what_is_planned_once_more_was_under_way_and_other_content_was_not(edge: Edge) -> None:
    path, content, other = path_of(2), tsfile(first=100), path_of(3)
    task = under_way(edge, path, content)
    execute(edge.node.engine, GONE)
    entries = [plan_entry(path, content), plan_entry(other, tsfile(first=200))]
    assert [each.action for each in edge.plan(task, entries)] == ["have", "send"]
    edge.batch(task, {other: tsfile(first=200)})
    edge.end(task, {path: content, other: tsfile(first=200)})
    assert results(edge.outcome(task)) == {path: "quarantined", other: "loaded"}


def test_what_was_planned_and_had_not_begun_to_come_was_under_way(edge: Edge) -> None:
    path, content = path_of(2), tsfile(first=100)
    task = edge.start()
    assert [each.action for each in edge.plan(task, [plan_entry(path, content)])] == ["send"]
    execute(edge.node.engine, GONE)
    assert [each.action for each in edge.plan(task, [plan_entry(path, content)])] == ["send"]
    assert [each.problem for each in edge.batch(task, {path: content})] == [None]
    edge.end(task, {path: content})
    assert results(edge.outcome(task)) == {path: "quarantined"}


def test_a_group_that_is_deleted_between_decision_and_commit_takes_the_file_along(
    edge: Edge,
) -> None:
    path, content = path_of(2), tsfile(first=100)
    task = under_way(edge, path, content)
    deleted = []

    def delete(place: str) -> None:
        if place == "load.decided" and not deleted:
            deleted.append(place)
            execute(edge.node.engine, GONE)
            execute(edge.node.engine, "set storage group to root.sg")  # so nothing is amiss

    with crash.arm(delete):
        edge.end(task, {path: content})
        assert results(edge.outcome(task)) == {path: "quarantined"}
    assert deleted
    assert live(edge.node) == []


def test_a_receiver_that_starts_anew_knows_what_was_under_way(world: World) -> None:
    path, content = path_of(2), tsfile(first=100)
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round({path_of(1): tsfile(first=1)})
        task = under_way(edge, path, content)
        execute(node.engine, GONE)
        node.engine.checkpoint()
    with world.node() as node:
        edge.node = node
        edge.end(task, {path: content})
        assert results(edge.outcome(task)) == {path: "quarantined"}


def test_files_of_other_groups_and_of_one_that_had_none_are_loaded(edge: Edge) -> None:
    other = "sequence/root.other/0/0/1600000000005-5-0.tsfile"
    content = tsfile("root.other.d1")
    task = under_way(edge, other, content)
    execute(edge.node.engine, GONE)
    edge.end(task, {other: content})
    assert results(edge.outcome(task)) == {other: "loaded"}


def test_a_table_below_the_group_that_is_deleted_goes_with_it(edge: Edge) -> None:
    engine = edge.node.engine
    execute(engine, "set storage group to root.e1")
    path = "sequence/root.e1.x/0/0/1600000000005-5-0.tsfile"
    content = tsfile("root.e1.x.d1")
    assert results(edge.round({path: content})) == {path: "loaded"}
    execute(engine, "delete storage group root.e1 with data")
    with engine.reading() as state:
        assert state.loaded_tables.named("root.e1.x") is None


def test_what_came_in_a_task_that_ended_without_it_is_under_way_in_the_next_one(
    edge: Edge,
) -> None:
    whole, begun, fresh = path_of(2), path_of(3), path_of(4)
    files = {whole: tsfile(first=100), begun: tsfile(first=200), fresh: tsfile(first=300)}
    first = under_way(edge, whole, files[whole])
    edge.plan(first, [plan_entry(begun, files[begun])])
    metadata = {"path": begun, "task": first}
    size = len(files[begun])
    view = edge.node.uploads.create(edge.who, edge.uuid, size, metadata, files[begun][:50])
    execute(edge.node.engine, GONE)
    second = edge.start()
    planned = edge.plan(second, [plan_entry(path, content) for path, content in files.items()])
    assert [each.action for each in planned] == ["have", "resume", "send"]
    edge.send(view.id, files[begun], offset=50)
    edge.batch(second, {fresh: files[fresh]})
    edge.end(second, files)
    told = results(edge.outcome(second))
    assert told == {whole: "quarantined", begun: "quarantined", fresh: "loaded"}
    assert live(edge.node) == [fresh]


def test_what_is_said_to_be_sent_again_comes_though_its_bytes_were_here_before(edge: Edge) -> None:
    path, content = path_of(2), tsfile(first=100)
    under_way(edge, path, content)
    execute(edge.node.engine, GONE)
    again = edge.start()
    assert [each.action for each in edge.plan(again, [plan_entry(path, content, retry=True)])] == [
        "have"
    ]
    edge.end(again, {path: content})
    assert results(edge.outcome(again)) == {path: "loaded"}


@pytest.mark.parametrize("restarted", [False, True])
def test_an_upload_without_a_task_for_a_group_that_is_deleted_is_refused(
    world: World, restarted: bool
) -> None:
    path, content = path_of(2), tsfile(first=100)
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round({path_of(1): tsfile(first=1)})
        view = node.uploads.create(edge.who, edge.uuid, len(content), {"path": path}, content[:50])
        execute(node.engine, GONE)
        if not restarted:
            with pytest.raises(ForbiddenError, match=r"root\.sg was deleted while it was under"):
                edge.send(view.id, content, offset=50)
            assert live(node) == []
    with world.node() as node:
        edge.node = node
        if restarted:
            node.uploads.recover()
            with pytest.raises(ForbiddenError, match=r"root\.sg was deleted while it was under"):
                edge.send(view.id, content, offset=50)
        assert live(node) == []
        edge.upload(None, path, content)  # begun anew it is another word
        assert live(node) == [path]


def test_an_upload_whose_first_line_another_version_wrote_goes_on(edge: Edge) -> None:
    """Of its log nothing is cut off by how long that line would be today."""
    path, content = path_of(2), tsfile(first=100, points=400)
    view = edge.node.uploads.create(edge.who, edge.uuid, len(content), {"path": path})
    folder = edge.node.load.folders.find(edge.uuid)
    assert folder is not None
    log = f"{folder.uploads}/{view.id}.upload"
    head = msgspec.json.decode(folder.tree.read(log))
    del head["commit"]
    folder.tree.write_atomic(log, msgspec.json.encode(head) + b"\n")
    partial = PartialUpload.open(folder.tree, folder.uploads, view.id)
    assert partial is not None
    partial.prepare()
    with folder.tree.open_write(partial.part) as file:
        pending = partial.write(file, content[:50])
        partial.flush(file)
        partial.count(pending)
    again = PartialUpload.open(folder.tree, folder.uploads, view.id)
    assert again is not None
    assert again.prepare() == 50


def test_a_load_at_the_centre_for_a_group_that_is_deleted_takes_nothing(
    node: Node, tmp_path: Path
) -> None:
    def load(number: int) -> list[tuple[str, str]]:
        place = tmp_path / str(number) / path_of(number)
        place.parent.mkdir(parents=True)
        place.write_bytes(tsfile(first=number * 100))
        request = CentreLoadRequest(
            task=secrets.token_hex(16), paths=[str(tmp_path / str(number))], on_duplicate="keep"
        )
        answer = node.operator.centre.load(request)
        return [(each.result, each.reason or "") for each in answer.files]

    def delete(place: str) -> None:
        if place == "centre.copied":
            execute(node.engine, GONE)

    assert load(1) == [("loaded", "")]
    with crash.arm(delete):
        [(result, reason)] = load(2)
    assert result == "refused"
    assert "root.sg was deleted while it was under way" in reason
    assert live(node) == []
    assert load(3) == [("loaded", "")]


def test_a_write_that_was_open_while_its_group_was_deleted_loads_nothing(node: Node) -> None:
    def write(task: str, number: int, *, gone: bool = False) -> list[str]:
        node.operator.writes.open(task, WriteRequest(on_duplicate="keep"), None)
        content = tsfile(first=number * 100)
        attempt = secrets.token_hex(16)
        block = memoryview(content)
        node.operator.writes.put(task, attempt, 0, 0, block, xxh3_64(block), None)
        if gone:
            execute(node.engine, GONE)
        part = StagedPart(
            attempt=attempt,
            number=0,
            group="root.sg",
            partition=0,
            size=len(content),
            md5=md5(content).hexdigest(),
        )
        node.operator.writes.commit(task, [part], None)
        while not (answer := node.operator.centre.answer(task, 5.0)).done:
            pass
        return [each.result for each in answer.files]

    assert write("1" * 32, 1) == ["loaded"]
    assert write("2" * 32, 2, gone=True) == ["refused"]
    assert live(node) == []
    assert write("3" * 32, 3) == ["loaded"]
