"""Two machines under one uuid, and rounds that keep ending early: told wherever edges are."""

from __future__ import annotations

import dataclasses

import pytest

from common import wire
from common.errors import CloneError
from receiver.node import Node
from receiver.operator.edges.fleet import list_fleet
from receiver.operator.edges.senders import accept_sender, list_running_senders, remove_sender
from receiver.operator.status import running_status
from tests.support.node_world import OPERATOR, A, Edge, World, path_of, tsfile
from tests.unit.receiver.metrics.test_receiver_readings import scrape

TWO = "two machines speak under its uuid"


def copied(node: Node) -> tuple[Edge, Edge]:
    """An edge that goes on, and a copy that was turned away."""
    edge = Edge(node)
    edge.check()
    edge.round({path_of(1): tsfile("root.sg.d1")})
    copy = dataclasses.replace(edge)
    for number in (2, 3):
        edge.round({path_of(number): tsfile("root.sg.d1", first=number * 100)})
    with pytest.raises(CloneError):
        copy.check()
    return edge, copy


def troubles(node: Node) -> list[str]:
    (row,) = list_fleet(node.operator).edges
    return list(row.troubles)


def concerns(node: Node) -> list[str]:
    return list(running_status(node.operator, None).concerns)


def test_a_copy_is_told_though_both_machines_go_on_speaking(node: Node, world: World) -> None:
    edge, copy = copied(node)
    edge.check()
    for each in (copy, edge):  # both under one uuid: either word is the last one
        node.checks.heartbeat(each.who, A, wire.Heartbeat(version="1", label="plant 7"))
    assert troubles(node) == [TWO]
    (concern,) = concerns(node)
    assert concern.startswith("two machines speak under one uuid: ")
    assert scrape(node)["tsferry_edge_clone_refused_timestamp_seconds", A, A] == world.clock()


def test_it_passes_an_hour_after_the_copy_came_last(node: Node, world: World) -> None:
    copied(node)
    world.clock.now += 3599.0  # type: ignore[attr-defined]
    assert troubles(node) == [TWO]
    world.clock.now += 2.0  # type: ignore[attr-defined]
    assert (troubles(node), concerns(node)) == ([], [])


def test_it_passes_once_the_one_that_an_operator_accepted_has_come(node: Node) -> None:
    _, copy = copied(node)
    accept_sender(node.engine, A)
    assert troubles(node) == [TWO]
    copy.check()
    assert (troubles(node), concerns(node)) == ([], [])


def test_a_sender_that_was_removed_is_no_copy(node: Node) -> None:
    edge = Edge(node)
    edge.round({path_of(1): tsfile("root.sg.d1")})
    remove_sender(node.operator, OPERATOR, A)
    with pytest.raises(CloneError, match="removed by an operator"):
        edge.check()
    assert concerns(node) == []


def test_rounds_that_end_early_for_half_an_hour_are_a_concern(node: Node, world: World) -> None:
    edge = Edge(node)
    edge.check()

    def beats(problem: str, minutes: int = 1) -> None:
        for _ in range(minutes):
            world.clock.now += 60.0  # type: ignore[attr-defined]
            node.checks.heartbeat(edge.who, A, wire.Heartbeat(version="1", problem=problem))

    beats("no space", 31)
    assert (troubles(node), concerns(node)) == (["its last round: no space"], [])
    beats("no space")
    (concern,) = concerns(node)
    assert concern.startswith("rounds end early, for over half an hour: ")
    beats("")
    assert (troubles(node), concerns(node)) == ([], [])
    beats("no space", 31)
    assert concerns(node) == []


def test_what_was_known_of_it_outlives_the_receiver(world: World) -> None:
    with world.node() as node:
        copied(node)
    with world.node() as node:
        (view,) = list_running_senders(node.operator)
        assert view.clone_refused_at == world.clock()
        assert troubles(node) == [TWO]
