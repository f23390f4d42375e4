"""Which tablets go from nodes with much to nodes with little: a plan, of nothing but what is known.

A node that has just come is given new tablets alone, so that what it costs to copy old ones is for
an operator to say. The plan takes from the node with most, and gives to the one with least, the
largest tablet that leaves them nearer to each other, until all are within a tenth of their mean.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from receiver.placement.assigning.expected_load import PlacedTablet
    from receiver.placement.placeable_nodes import PlaceableNode

__all__ = ["TabletMove", "moves_to_balance", "placed_bytes"]

_APART: Final = 0.1
"""Of the mean of all nodes: nodes that differ by less are as even as copying is worth."""


class TabletMove(NamedTuple):
    """A tablet that goes from a node to another one.

    Attributes:
        tablet: its id.
        source: uuid of the node that has it.
        target: of the one that is to have it.
        size: bytes of its files now.
    """

    tablet: str
    source: str
    target: str
    size: int


def placed_bytes(tablets: Iterable[PlacedTablet], nodes: Iterable[str]) -> dict[str, int]:
    """Bytes of the tablets that are placed at each of some nodes, by uuid."""
    found = dict.fromkeys(nodes, 0)
    for tablet in tablets:
        for uuid in tablet.nodes:
            if uuid in found:
                found[uuid] += tablet.size
    return found


def moves_to_balance(
    tablets: Sequence[PlacedTablet],
    nodes: Mapping[str, PlaceableNode],
    *,
    most: int,
    staying: Collection[str] = (),
    apart: bool = True,
) -> list[TabletMove]:
    """What is to go where, at most once each; the same nodes and tablets give the same answer.

    Args:
        tablets: all of them.
        nodes: all there are, by uuid; only those take part that may be given something.
        most: moves, at most.
        staying: ids of those that do not go, such as what is on its way already.
        apart: no two copies of a tablet on one host.
    """
    plan = _Plan(tablets, nodes, staying, apart=apart)
    moves: list[TabletMove] = []
    while len(moves) < most:
        move = plan.next()
        if move is None:
            break
        moves.append(move)
    return moves


class _Plan:
    """What lies where once the moves so far are done."""

    def __init__(
        self,
        tablets: Sequence[PlacedTablet],
        nodes: Mapping[str, PlaceableNode],
        staying: Collection[str],
        *,
        apart: bool,
    ) -> None:
        self._nodes = {uuid: node for uuid, node in nodes.items() if node.takes and node.counts}
        self._hosts = {uuid: node.host for uuid, node in nodes.items()} if apart else {}
        self._placed = {each.tablet: set(each.nodes) for each in tablets}
        self._load = placed_bytes(tablets, self._nodes)
        self._room = {uuid: node.free for uuid, node in self._nodes.items()}
        self._mean = sum(self._load.values()) / max(1, len(self._load))
        self._left: dict[str, list[tuple[int, str]]] = {uuid: [] for uuid in self._nodes}
        for each in tablets:
            for uuid in each.nodes:
                if each.size and uuid in self._left and each.tablet not in staying:
                    self._left[uuid].append((each.size, each.tablet))
        for some in self._left.values():
            some.sort()

    def next(self) -> TabletMove | None:
        """The next move; None when all is even, or nothing fits."""
        order = sorted(self._load, key=lambda uuid: (self._load[uuid], uuid))
        for source in reversed(order):
            for target in order:
                apart = self._load[source] - self._load[target]
                if apart <= self._mean * _APART:
                    break
                move = self._move(source, target, apart // 2)
                if move is not None:
                    return move
        return None

    def _move(self, source: str, target: str, size: int) -> TabletMove | None:
        """The largest tablet of at most a size that may go from one to the other."""
        left = self._left[source]
        for at in range(bisect_right(left, (size, "~")) - 1, -1, -1):
            moved, tablet = left[at]
            if moved < self._room[target] and self._may_be_at(tablet, source, target):
                del left[at]
                self._take_out(tablet)
                self._placed[tablet] = {*self._placed[tablet] - {source}, target}
                self._load[source] -= moved
                self._load[target] += moved
                self._room[target] -= moved
                return TabletMove(tablet, source, target, moved)
        return None

    def _may_be_at(self, tablet: str, source: str, target: str) -> bool:
        others = self._placed[tablet] - {source}
        hosts = {self._hosts.get(each, each) for each in others}
        return target not in others and self._hosts.get(target, target) not in hosts

    def _take_out(self, tablet: str) -> None:
        """It goes once in a plan: what is copied from is not to go as well."""
        for uuid in self._placed[tablet]:
            if uuid in self._left:
                self._left[uuid] = [each for each in self._left[uuid] if each[1] != tablet]
