"""Of merges that stay beside their inputs `status` says why, by partition."""

from __future__ import annotations

import secrets
from pathlib import Path

from receiver.node import Node
from receiver.operator.asked_work.compact import merge_totals
from receiver.operator.views.load_wire import CentreLoadRequest
from tests.support.merging_node import compactions, merge_here, small_files
from tests.support.node_world import Clock, World, tsfile
from tests.support.proving import Site, in_this_process

AFTER = 500.0
_WEEK = 604_800_000
"""Milliseconds, the width of a partition."""


def load(node: Node, root: Path, group: str, partition: int, owner: str = "") -> None:
    """Three files of a partition, without an edge."""
    for at in range(1, 4):
        place = root / f"sequence/{group}/0/{partition}/{at}-{at}-0-0.tsfile"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(tsfile(f"{group}.d", first=at * 10 + partition * _WEEK))
    request = CentreLoadRequest(task=secrets.token_hex(16), paths=[str(root)], owner=owner)
    answer = node.operator.centre.load(request)
    assert {each.result for each in answer.files} == {"loaded"}, answer


def test_merges_of_files_that_were_loaded_at_the_centre_are_named_by_partition(
    tmp_path: Path,
) -> None:
    clock = Clock()
    world = World(tmp_path, clock=clock, merge={"final_after": AFTER, "quiet": 0.0})
    (world.data / "sync-sender" / "above_8443").mkdir(parents=True)
    with world.still_node() as node:
        merge_here(node)
        in_this_process(node)
        site = Site(node)
        small_files(site, 3)
        load(node, tmp_path / "one", "root.centre", 1)
        load(node, tmp_path / "two", "root.centre", 2)
        load(node, tmp_path / "three", "root.owned", 3, site.uuid)
        for group in ("root.sg", "root.centre", "root.owned"):
            node.compactor.compact(group)
        node.compactor.run_once()
        assert len(compactions(node)) == 4
        assert node.final_merges.run_once() == 0
        assert merge_totals(node.operator).kept_back_partitions == (), "it is too early"
        clock.now += AFTER + 1
        assert node.final_merges.run_once() == 0
        totals = merge_totals(node.operator)
    assert totals.kept_back_count == 3
    assert [
        (each.storage_group, each.partition, each.merges) for each in totals.kept_back_partitions
    ] == [("root.centre", "1", 1), ("root.centre", "2", 1), ("root.owned", "3", 1)]
    for each in totals.kept_back_partitions:
        assert "forwarded from" in each.reason
    assert totals.kept_back == f"root.centre/0/1: {totals.kept_back_partitions[0].reason}"
