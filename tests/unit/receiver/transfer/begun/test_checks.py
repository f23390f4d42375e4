from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from common import wire
from common.errors import CloneError, ForbiddenError, GoneError, ProtocolError
from receiver.node import Node
from receiver.operator.edges.senders import accept_sender, list_running_senders
from receiver.operator.stored.files import list_files
from receiver.transfer.begun.look_numbers import latest_look
from tests.support.node_world import (
    OPERATOR,
    A,
    B,
    Edge,
    World,
    path_of,
    plan_entry,
    results,
    sender,
    tsfile,
)


def request(node: Node, **more: object) -> wire.CheckRequest:
    given = {
        "protocol": 1,
        "version": "0",
        "sender": A,
        "partition_interval_ms": node.config.partition_interval_ms,
        **more,
    }
    return wire.CheckRequest(**given)  # type: ignore[arg-type]


def copy_of(edge: Edge) -> Edge:
    """The same machine a second time: all that it remembers is copied."""
    return Edge(
        edge.node, edge.uuid, edge.who, edge.epoch, edge.engine, edge.last_task, edge.newest
    )


# -- the check ------------------------------------------------


def test_looks_go_on_from_those_of_another_engine_and_not_from_what_cannot_have_been(
    world: World,
) -> None:
    with world.node() as node:
        newest = node.engine.newest_commit
        now = latest_look(node.engine) - 1
        assert newest < node.checks.check(sender(), request(node, look=5)).look < now
        assert node.checks.check(sender(), request(node, look=now - 9)).look == now - 8
        assert now - 8 < node.checks.check(sender(), request(node, look=1 << 60)).look <= now
    world.clock.now += 3600  # type: ignore[attr-defined]
    with world.node() as node:  # it does not know any more which numbers it gave
        later = max(now, node.engine.newest_commit) + 1000
        assert node.checks.check(sender(), request(node, look=later)).look == later + 1


def test_a_later_look_is_behind_all_that_a_task_can_tell_of(world: World) -> None:
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        latest = latest_look(node.engine) - 1
        task = edge.start(look=latest)
        edge.end(task, {})
        edge.outcome(task)
    world.clock.now += 2  # type: ignore[attr-defined]
    with world.node() as node:
        edge.node = node
        edge.round({path_of(1): tsfile()})
        assert edge.check().look > latest


def test_another_protocol_is_refused_with_both_numbers(node: Node) -> None:
    with pytest.raises(ProtocolError, match=r"2.*1"):
        node.checks.check(sender(), request(node, protocol=2))


def test_another_partition_interval_is_refused(node: Node) -> None:
    with pytest.raises(ProtocolError, match="partition_interval"):
        node.checks.check(sender(), request(node, partition_interval_ms=1))


def test_another_time_unit_is_refused(node: Node) -> None:
    with pytest.raises(ProtocolError, match="time_unit is 'us' at the sender and 'ms' here"):
        node.checks.check(sender(), request(node, time_unit="us"))


def test_a_token_checks_for_its_own_sender_only(node: Node) -> None:
    with pytest.raises(ForbiddenError):
        node.checks.check(sender(B), request(node))
    with pytest.raises(ForbiddenError):
        node.checks.check(OPERATOR, request(node))


def test_a_first_check_enters_the_sender_and_its_label_once(node: Node, world: World) -> None:
    node.checks.check(sender(), request(node, label="plant 7"))
    commit = node.engine.newest_commit
    node.checks.check(sender(), request(node, label="plant 7"))
    assert node.engine.newest_commit == commit
    (view,) = list_running_senders(node.operator)
    assert (view.uuid, view.label) == (A, "plant 7")
    node.checks.check(sender(), request(node, label="plant 8" * 1000))
    (view,) = list_running_senders(node.operator)
    assert view.label.startswith("plant 8")
    assert len(view.label) == 200
    assert list((world.data / "sync-receiver").iterdir()) == []
    Edge(node).round({path_of(1): tsfile()})
    assert world.folder().name == view.directory


def test_a_receiver_that_cannot_write_still_answers_a_check(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    from common.errors import ReadOnlyError

    def fails(*_: object) -> None:
        raise ReadOnlyError("after a failed sync")

    monkeypatch.setattr(node.engine, "commit", fails)
    assert node.checks.check(sender(), request(node)).history is wire.History.NEW


def test_the_check_tells_the_scope_and_the_limits(node: Node) -> None:
    answer = node.checks.check(sender(scope=["root.a.**"]), request(node))
    assert answer.scope == ["root.a.**"]
    assert answer.limits.max_chunk_bytes == node.config.limits.max_chunk_bytes


# -- history ------------------------------------------------


def test_first_contact_is_new_and_a_round_later_it_continues(node: Node) -> None:
    edge = Edge(node)
    assert edge.check().history is wire.History.NEW
    edge.round({path_of(1): tsfile()})
    assert edge.check().history is wire.History.CONTINUES


def test_an_exchanged_receiver_is_new(node: Node, tmp_path: Path) -> None:
    edge = Edge(node)
    edge.check()
    edge.round({path_of(1): tsfile()})
    with World(tmp_path / "other").node() as other:
        moved = copy_of(edge)
        moved.node = other
        assert moved.check().history is wire.History.NEW


def test_a_receiver_restored_from_an_old_copy_is_rewound_and_comes_back(tmp_path: Path) -> None:
    """Nothing is loaded twice, nothing is deleted by mistake, the next round puts it right."""
    world = World(tmp_path / "now")
    files = {path_of(number): tsfile(first=number * 100) for number in range(4)}
    with world.node() as node:
        edge = Edge(node)
        edge.check()
        edge.round(dict(list(files.items())[:2]))
    shutil.copytree(tmp_path / "now", tmp_path / "old")
    with world.node() as node:
        edge.node = node
        edge.check()
        edge.round(files)
        edge.check()
    restored = World(tmp_path / "old")
    with restored.node() as node:
        edge.node = node
        assert edge.check().history is wire.History.REWOUND
        assert set(results(edge.round(files)).values()) == {"already", "loaded"}
        assert sorted(restored.loaded().values()) == sorted(files.values())
        assert edge.check().history is wire.History.CONTINUES


def test_a_newest_commit_that_is_not_there_is_rewound(node: Node) -> None:
    edge = Edge(node)
    edge.check()
    edge.round({path_of(1): tsfile()})
    edge.newest = node.engine.newest_commit + 1
    assert edge.check().history is wire.History.REWOUND


def test_a_last_task_of_another_commit_is_rewound(node: Node) -> None:
    edge = Edge(node)
    edge.check()
    edge.round({path_of(1): tsfile()})
    assert edge.last_task is not None
    edge.last_task = msgspec.structs.replace(edge.last_task, commit=edge.last_task.commit - 1)
    assert edge.check().history is wire.History.REWOUND


# -- clones ------------------------------------------------


def test_clones_by_turns_are_refused_with_the_way_out(node: Node) -> None:
    edge = Edge(node)
    edge.check()
    edge.round({path_of(1): tsfile()})
    clone = copy_of(edge)
    edge.round({path_of(1): tsfile()})
    edge.round({path_of(1): tsfile()})
    with pytest.raises(CloneError, match=r"init --new-identity"):
        clone.check()
    with pytest.raises(CloneError, match="senders accept"):
        clone.start()
    edge.round({path_of(1): tsfile()})  # the original goes on


def test_clones_at_the_same_time_are_refused(node: Node) -> None:
    edge = Edge(node)
    edge.check()
    edge.round({path_of(1): tsfile()})
    clone = copy_of(edge)
    task, of_clone = edge.start(), clone.start()
    clone.plan(of_clone, [])
    with pytest.raises(CloneError):
        edge.plan(task, [])
    with pytest.raises(CloneError):
        edge.end(task, {})


def test_a_lost_answer_to_a_start_is_no_clone(node: Node) -> None:
    edge = Edge(node)
    edge.check()
    edge.round({path_of(1): tsfile()})
    forgetful = copy_of(edge)
    task = forgetful.start(settle=False)  # the answer is lost: `edge` does not know the new epoch
    edge.check()
    edge.start(task)
    assert edge.epoch == forgetful.epoch


def test_an_old_finished_task_tells_a_copy_nothing(node: Node) -> None:
    edge = Edge(node)
    edge.check()
    task = edge.start()
    clone = copy_of(edge)
    edge.end(task, {})
    edge.outcome(task)
    edge.round({path_of(1): tsfile()})
    again = node.tasks.start(
        clone.who, A, task, wire.StartRequest(engine=node.engine.uuid, epoch=clone.epoch)
    )
    assert again.state is wire.TaskState.DONE
    assert again.epoch is None


def test_a_sender_that_lost_its_memory_is_let_in_by_the_operator(node: Node) -> None:
    edge = Edge(node)
    edge.check()
    for _ in range(2):
        edge.round({path_of(1): tsfile()})
    lost = Edge(node)
    with pytest.raises(CloneError):
        lost.check()
    accept_sender(node.engine, A)
    lost.check()
    assert results(lost.round({path_of(1): tsfile()})) == {path_of(1): "already"}
    with pytest.raises(CloneError):
        edge.start()


def test_a_start_meant_for_another_engine_is_refused(node: Node) -> None:
    edge = Edge(node)
    with pytest.raises(GoneError):
        node.tasks.start(edge.who, A, "1" * 32, wire.StartRequest(engine="0" * 32))


# -- wanted, heartbeats ------------------------------------------------


def test_a_file_found_bad_is_wanted_and_loaded_again_once(node: Node, world: World) -> None:
    from receiver.metadata.model import records

    edge = Edge(node)
    edge.check()
    edge.round({path_of(1): tsfile()})
    (row,) = list_files(node.operator).files
    node.engine.commit([records.FileQuarantined(row.physical, "md5: other")])
    answer = edge.check()
    assert [(each.path, each.md5) for each in answer.wanted] == [(path_of(1), row.md5)]
    assert node.checks.heartbeat(edge.who, A, wire.Heartbeat(version="0")).wanted
    assert results(edge.round({path_of(1): tsfile()})) == {path_of(1): "loaded"}
    assert edge.check().wanted == []
    assert len(list_files(node.operator).files) == 1


def test_heartbeats_are_kept_for_senders_that_are_known(node: Node) -> None:
    edge = Edge(node)
    beat = wire.Heartbeat(version="0", pending_files=3)
    node.checks.heartbeat(edge.who, A, beat)
    assert list_running_senders(node.operator) == []
    edge.check()
    node.checks.heartbeat(edge.who, A, beat)
    (view,) = list_running_senders(node.operator)
    assert view.heartbeat == beat


def test_the_check_names_an_unfinished_task(node: Node) -> None:
    edge = Edge(node)
    edge.check()
    task = edge.start()
    edge.plan(task, [plan_entry(path_of(1), tsfile())])
    assert edge.check().unfinished == task
