from __future__ import annotations

import pytest

from common import wire
from common.errors import NotFoundError
from receiver.node import Node
from receiver.operator.directories import look
from receiver.operator.edges.owners import adopt_sender
from receiver.operator.edges.senders import (
    all_senders,
    list_running_senders,
    remove_sender,
    set_lateness,
)
from receiver.operator.status import running_status
from receiver.transfer.heard_senders import HEARD_FILE
from tests.support.node_world import OPERATOR, A, B, Edge, World, path_of, tsfile

DAY = 86400.0


def late(node: Node) -> dict[str, bool | None]:
    return {each.uuid: each.late for each in list_running_senders(node.operator)}


def come(node: Node, uuid: str, label: str = "") -> Edge:
    edge = Edge(node, uuid)
    edge.check()
    node.load.make_known(uuid, f"x_{uuid}", label)
    return edge


def files_of(uuid: str) -> dict[str, bytes]:
    return {path_of(int(uuid[0], 16)): tsfile(f"root.sg.{uuid[0]}")}


def test_a_sender_is_late_once_it_is_silent_for_longer_than_it_may_be(world: World) -> None:
    with world.node() as node:
        come(node, A, "plant 7")
        world.clock.now += DAY  # type: ignore[attr-defined]
        edge = come(node, B)
        assert late(node) == {A: False, B: False}, "a day is just not too long"
        world.clock.now += 1.0  # type: ignore[attr-defined]
        assert late(node) == {A: True, B: False}
        status = running_status(node.operator, None)
        assert (status.late, [each.label for each in status.late_senders]) == (1, ["plant 7"])
        world.clock.now += DAY  # type: ignore[attr-defined]
        node.checks.heartbeat(edge.who, B, wire.Heartbeat(version="0"))
        assert late(node) == {A: True, B: False}, "a heartbeat will do"


def test_each_sender_may_have_its_own_silence_also_after_a_restart(world: World) -> None:
    with world.node() as node:
        come(node, A)
        come(node, B)
        set_lateness(node.engine, A, 2 * DAY)
        set_lateness(node.engine, B, 0.0)
        with pytest.raises(NotFoundError):
            set_lateness(node.engine, "c" * 32, 1.0)
        node.engine.checkpoint()
    world.clock.now += 1.5 * DAY  # type: ignore[attr-defined]
    with world.node() as node:
        assert late(node) == {A: False, B: False}
        views = list_running_senders(node.operator)
        assert [(each.late_after, each.late_after_own) for each in views] == [
            (2 * DAY, True),
            (0.0, True),
        ]
        set_lateness(node.engine, A, None)
        assert late(node) == {A: True, B: False}
        world.clock.now += 999 * DAY  # type: ignore[attr-defined]
        assert late(node) == {A: True, B: False}, "never is never"


def test_a_box_that_was_replaced_or_removed_is_awaited_no_more(world: World) -> None:
    with world.node() as node:
        for uuid in (A, B):
            come(node, uuid).round(files_of(uuid))
        adopt_sender(node.engine, OPERATOR, A, B)
        world.clock.now += 99 * DAY  # type: ignore[attr-defined]
        assert late(node) == {A: False, B: True}
        remove_sender(node.operator, OPERATOR, B)
        assert late(node) == {A: False, B: False}


def test_without_a_server_it_is_known_and_without_signs_of_life_not(world: World) -> None:
    with world.node() as node:
        come(node, A)
    with look(world.config) as there:
        (view,) = list_running_senders(there)
        assert (view.late, view.heard_at) == (True, world.clock()), "it was in 2023"
    (world.root / "schema" / HEARD_FILE).unlink()
    with look(world.config) as there:
        (view,) = list_running_senders(there)
        assert (view.late, view.heard_at) == (None, None), "a node that reads has no such file"


def test_one_of_which_no_sign_is_kept_was_heard_with_its_last_commit(world: World) -> None:
    with world.node() as node:
        come(node, A).round({path_of(1): tsfile()})
    (world.root / "schema" / HEARD_FILE).unlink()
    world.clock.now += DAY - 60.0  # type: ignore[attr-defined]
    with world.node() as node:
        assert late(node) == {A: False}
        world.clock.now += 120.0  # type: ignore[attr-defined]
        assert late(node) == {A: True}


def test_two_edges_with_one_label_are_named_until_one_is_removed(world: World) -> None:
    with world.node() as node:
        for uuid in (A, B):
            come(node, uuid, "plant 7").round(
                {path_of(int(uuid[0], 16)): tsfile(f"root.{uuid[0]}.d")}
            )
        come(node, "c" * 32, "plant 8")
        (shared,) = all_senders(node.operator).shared_labels
        assert (shared.label, shared.senders) == ("plant 7", (A, B))
        assert any("'plant 7'" in each for each in running_status(node.operator, None).concerns)
        remove_sender(node.operator, OPERATOR, B)
        assert all_senders(node.operator).shared_labels == []


def test_the_label_of_a_box_that_was_replaced_goes_on_with_the_new_one(world: World) -> None:
    with world.node() as node:
        for uuid in (A, B):
            come(node, uuid, "plant 7").round(
                {path_of(int(uuid[0], 16)): tsfile(f"root.{uuid[0]}.d")}
            )
        adopt_sender(node.engine, OPERATOR, A, B)
        assert all_senders(node.operator).shared_labels == []
