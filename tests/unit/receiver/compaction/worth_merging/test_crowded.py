"""What readers say of partitions with many files: heard once in a while, and merged first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.compaction.worth_merging.crowded import CrowdedPartitions
from receiver.metadata.state.tables.file_tables.retired import PartitionKey
from receiver.node import Node
from tests.support.merging_node import merge_here
from tests.support.node_world import Clock, World
from tests.support.proving import Site

KEYS = [PartitionKey("root.sg", "0", str(each)) for each in range(3)]
INTERVAL = 604_800_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def node(tmp_path: Path, clock: Clock) -> Iterator[Node]:
    merge = {"enabled": True, "quiet": 60.0, "min_files": 3}
    with World(tmp_path, clock=clock, merge=merge).still_node() as node:
        merge_here(node)
        site = Site(node)
        for at in range(1, 4):
            site.round({
                f"sequence/root.sg/0/{each.partition}/{at}-{at}-0-0.tsfile":
                    {"a": {INTERVAL * int(each.partition) + at: 1}}
                for each in KEYS
            })  # fmt: skip
        yield node


def test_what_a_reader_met_is_merged_before_others_when_it_is_due(node: Node, clock: Clock) -> None:
    node.crowded.report([("root.sg", "1"), ("root.no", "1"), ("root.sg", "77")])
    assert node.compactor.look() == 0, "it is not quiet yet: a reader does not change that"
    clock.now += 61
    assert node.compactor.look() == 3
    first = node.work.take("x", ["merge"])
    assert first is not None
    assert first.scope[0].partition == "1"
    others = [node.work.take("x", ["merge"]) for _ in range(2)]
    assert [each.priority for each in others if each is not None] == [0, 0]


def test_the_same_is_heard_once_in_ten_minutes_and_what_is_not_there_never(node: Node) -> None:
    now = [0.0]
    heard: list[PartitionKey] = []
    crowded = CrowdedPartitions(node.engine, heard.append, clock=lambda: now[0])
    said = [("root.sg", "1"), ("root.sg", "2"), ("root.no", "1")]
    crowded.report(said)
    crowded.report(said)
    assert heard == KEYS[1:]
    assert len(crowded._heard) == 2
    now[0] += 600
    crowded.report(said[:1])
    assert heard == [*KEYS[1:], KEYS[1]]
    assert len(crowded._heard) == 1


def test_open_work_is_not_added_once_more(node: Node, clock: Clock) -> None:
    clock.now += 61
    node.crowded.report([("root.sg", "1")])
    assert node.compactor.look() == 3
    node.compactor.met(KEYS[1])
    assert node.compactor.look() == 0
