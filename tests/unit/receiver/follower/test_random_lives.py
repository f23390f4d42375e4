"""Whatever a centre and its node go through, the node has one past of the centre, and the last."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from receiver.follower.read_node import ReadNode
from tests.support import tiers
from tests.support.followed import FollowedCentre, known


def live(centre: FollowedCentre, chance: random.Random, steps: int) -> None:
    pasts: list[set[int]] = [set()]
    """What the store has had, at each time when something was copied."""
    number, restores, node = 0, 0, None
    kept: list[tuple[int, int]] = []
    for _ in range(steps):
        action = chance.choice(
            ["commit", "commit", "commit", "checkpoint", "ship", "step", "step", "node", "restore"]
        )
        if action == "commit" or number == 0:
            centre.commit(number, ship=False)
            number += 1
        elif action == "checkpoint":
            centre.engine.collect()
            centre.engine.checkpoint()
        elif action == "ship":
            centre.shipper.ship()
            pasts.append(centre.numbers)
            kept = list(centre.commits)
        elif action == "restore" and len(pasts) > 1 and restores < 2:
            restores += 1
            is_late = chance.random() < 0.5 and centre.options.history
            at = chance.choice(kept)[0] if is_late else None
            centre.commits = list(kept)
            centre.restore(f"life-{restores}", at=at)
            pasts.append(centre.numbers)
        elif action == "node" and len(pasts) > 1:
            if node is not None:
                node.close()
            node = ReadNode.open(centre.config())
        elif action == "step" and node is not None:
            if node.follower.ready_anew:
                node.close()
                node = ReadNode.open(centre.config())
            else:
                node.follower.step()
        if node is not None:
            found = sorted(known(node.engine))
            # What came at once is applied commit by commit.
            assert any(found == sorted(each)[: len(found)] for each in pasts), (found, pasts)
    centre.commit(number)
    if node is not None:
        node.close()
    for _ in range(3):
        with ReadNode.open(centre.config()) as node:
            if not node.follower.ready_anew:
                node.follower.step()
            if not node.follower.ready_anew:
                assert known(node.engine) == centre.numbers
                return
    pytest.fail("it begins anew for ever")


@pytest.mark.parametrize("seed", range(tiers.examples(12)))
def test_a_node_has_one_past_of_its_centre(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    centre = FollowedCentre(tmp_path, history=chance.choice([0.0, 604800.0]))
    try:
        live(centre, chance, 60)
    finally:
        centre.stop()
