"""Which nodes a tablet is placed at: a function of the nodes and of nothing else.

Of two nodes that a tablet's id draws, the one that is going to have fewer bytes takes it: nearly as
even as to look at all of them, and a node that has just come is not given everything at once. The
draw is by the tablet's id and its generation, so the same nodes always give the same answer.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from receiver.placement.assigning.expected_load import ExpectedLoad

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from receiver.placement.placeable_nodes import PlaceableNode

__all__ = ["ChosenLoad", "PlacementWish", "chosen_nodes", "wished_nodes"]


class PlacementWish(NamedTuple):
    """What is to be placed.

    Attributes:
        tablet: its id.
        generation: of the placement that is to be.
        size: bytes of its files now.
        copies: how many nodes are to have it.
        apart: no two of them on one host.
    """

    tablet: str
    generation: int
    size: int
    copies: int
    apart: bool = True


class ChosenLoad:
    """What was given to nodes since they reported, so that one pass does not give one node all."""

    def __init__(self, expected: ExpectedLoad | None = None) -> None:
        """Nothing is given yet.

        Args:
            expected: what nodes are going to have; None for what they report.
        """
        self._expected = expected or ExpectedLoad(tuple)
        self._size: dict[str, int] = {}
        self._coming: dict[str, int] = {}
        self._tablets: dict[str, int] = {}

    def add(self, uuid: str, wish: PlacementWish) -> None:
        """A node is given a tablet."""
        self._size[uuid] = self._size.get(uuid, 0) + wish.size
        more = self._expected.of_tablet(wish.tablet, wish.size)
        self._coming[uuid] = self._coming.get(uuid, 0) + more
        self._tablets[uuid] = self._tablets.get(uuid, 0) + 1

    def room(self, node: PlaceableNode) -> int:
        """Bytes that it still has room for."""
        return node.free - self._size.get(node.uuid, 0)

    def key(self, node: PlaceableNode) -> tuple[int, int, str]:
        """What nodes are compared by: the lower the better."""
        size = self._expected.of_node(node.uuid, node.used) + self._coming.get(node.uuid, 0)
        return size, node.tablets + self._tablets.get(node.uuid, 0), node.uuid


def chosen_nodes(
    wish: PlacementWish,
    nodes: Mapping[str, PlaceableNode],
    load: ChosenLoad,
    *,
    beside: Sequence[str] = (),
    never: Collection[str] = (),
) -> list[str]:
    """Further nodes for a tablet, so that it has as many as are wished for, or as there are.

    Args:
        wish: what is to be placed.
        nodes: all there are, by uuid.
        load: what was given in this pass; it is added to.
        beside: nodes that have it, and keep it.
        never: nodes that are not to be chosen.
    """
    draw = random.Random(f"{wish.tablet}/{wish.generation}")  # noqa: S311  # even, not secret
    chosen: list[str] = []
    while len(beside) + len(chosen) < wish.copies:
        taken = {*beside, *chosen}
        hosts = {nodes[each].host for each in taken if each in nodes} if wish.apart else set()
        fitting = [
            node
            for uuid, node in sorted(nodes.items())
            if node.takes
            and uuid not in taken
            and uuid not in never
            and node.host not in hosts
            and load.room(node) > wish.size
        ]
        if not fitting:
            break
        two = draw.sample(fitting, min(2, len(fitting)))
        best = min(two, key=load.key)
        load.add(best.uuid, wish)
        chosen.append(best.uuid)
    return chosen


def wished_nodes(
    wish: PlacementWish,
    nodes: Mapping[str, PlaceableNode],
    load: ChosenLoad,
    now: Sequence[str],
    *,
    gone: Collection[str],
) -> list[str]:
    """The nodes that a tablet should be placed at, the leader first.

    Those that have it keep it, the leader stays the leader. One that is lost, or does not answer to
    a creation, is made up for. One that is emptied keeps it until there is another one for it.

    Args:
        wish: what is to be placed.
        nodes: all there are, by uuid.
        load: what was given in this pass; it is added to.
        now: where it is placed now, the leader first.
        gone: of these, those that do not count any more.
    """
    kept = [each for each in now if each in nodes and each not in gone]
    staying = [each for each in kept if not nodes[each].is_draining][: wish.copies]
    chosen = chosen_nodes(wish, nodes, load, beside=staying, never={*kept, *gone})
    found = [*staying, *chosen]
    for each in kept:  # emptied ones, where nobody takes their place
        if len(found) >= min(wish.copies, len(kept)):
            break
        if each not in found:
            found.append(each)
    return found
