"""Tablets that go from nodes with much to nodes with little."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.errors import ConflictError
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.operator.places.rebalancing import rebalance_copies
from receiver.operator.views.copy_views import RebalanceRequest
from receiver.placement.assigning.balancing import moves_to_balance, placed_bytes
from receiver.placement.assigning.expected_load import PlacedTablet
from receiver.placement.placeable_nodes import PlaceableNode
from tests.support.copy_nodes import CopyCentre


def node(uuid: str, host: str = "", **more: object) -> PlaceableNode:
    return PlaceableNode(uuid, host or uuid, url="http://node", free=1 << 40)._replace(**more)


def nodes(*several: PlaceableNode) -> dict[str, PlaceableNode]:
    return {each.uuid: each for each in several}


def tablets(*places: str, size: int = 100) -> list[PlacedTablet]:
    """A tablet a word, placed at the nodes that its letters name."""
    return [
        PlacedTablet(f"{at:03}", "table", at, size, tuple(each)) for at, each in enumerate(places)
    ]


def after(placed: Sequence[PlacedTablet], there: dict[str, PlaceableNode], **more: object):
    """Where tablets are once all moves are done."""
    found = {each.tablet: list(each.nodes) for each in placed}
    for move in moves_to_balance(placed, there, most=1000, **more):  # type: ignore[arg-type]
        found[move.tablet].remove(move.source)
        found[move.tablet].append(move.target)
    return found


def test_a_new_node_gets_its_share_and_no_tablet_comes_twice_to_one():
    there = nodes(node("a"), node("b"), node("c"))
    placed = tablets(*["ab"] * 30)
    found = after(placed, there)
    assert all(len(set(each)) == 2 for each in found.values())
    moved = [PlacedTablet(t, "table", 0, 100, tuple(n)) for t, n in found.items()]
    load = placed_bytes(moved, there)
    assert sum(load.values()) == 6000
    assert max(load.values()) - min(load.values()) <= 200
    assert moves_to_balance(moved, there, most=1000) == [], "what is even stays"


def test_the_same_is_planned_again_and_no_more_than_may_be():
    there = nodes(node("a"), node("b"), node("c"))
    placed = tablets(*["ab"] * 30)
    assert len(moves_to_balance(placed, there, most=3)) == 3
    plans = [moves_to_balance(placed, there, most=1000) for _ in range(2)]
    assert plans[0] == plans[1]
    assert len({each.tablet for each in plans[0]}) == len(plans[0]), "each at most once"


@pytest.mark.parametrize(
    "new",
    [
        node("c", is_draining=True),
        node("c", is_down=True),
        node("c", is_lost=True),
        node("c", is_hurt=True),
        node("c", url=""),
        node("c", free=50),
    ],
)
def test_nothing_goes_to_a_node_that_takes_nothing_or_has_no_room(new: PlaceableNode):
    assert moves_to_balance(tablets(*["ab"] * 30), nodes(node("a"), node("b"), new), most=9) == []


def test_no_two_copies_come_to_one_host():
    there = nodes(node("a", "one"), node("b", "two"), node("c", "two"))
    found = after(tablets(*["ab"] * 30), there)
    assert all("a" in each for each in found.values()), "from a nothing can go to the host of b"
    assert sum("c" in each for each in found.values()) == 14, "16 to 14 is even enough"
    together = after(tablets(*["ab"] * 30), there, apart=False)
    assert any("a" not in each for each in together.values())


def test_a_tablet_that_would_only_change_sides_stays():
    there = nodes(node("a"), node("b"))
    assert moves_to_balance(tablets("a", size=1 << 30), there, most=9) == []


class Looked(SimpleNamespace):
    """What an operator's call needs of a receiver with the nodes of a test."""

    engine: Engine

    @classmethod
    def at(cls, centre: CopyCentre) -> Looked:
        copies = SimpleNamespace(
            nodes=centre.views, book=centre.book, assignment=SimpleNamespace(wake=lambda: None)
        )
        config = SimpleNamespace(nodes=SimpleNamespace(replicas=2))
        return cls(engine=centre.engine, copies=copies, config=config)


def rebalance(centre: CopyCentre, *, confirm: bool = True):
    return rebalance_copies(Looked.at(centre), RebalanceRequest(confirm=confirm))  # type: ignore[arg-type]


@pytest.fixture
def centre(tmp_path: Path):
    centre = CopyCentre(tmp_path)
    yield centre
    centre.close()


def test_files_are_at_as_many_nodes_as_before_at_each_moment(centre: CopyCentre):
    centre.add(), centre.add()
    files = [centre.load(partition=each) for each in range(9)]
    centre.settle()
    new = centre.add()
    centre.settle(1)
    told = rebalance(centre, confirm=False)
    assert (told.tablets, told.done, new.names()) == (6, False, [])
    assert rebalance(centre, confirm=False) == told, "nothing was changed"
    assert rebalance(centre).done
    for _ in range(6):
        for each in files:
            holding = [node for node in centre.nodes if each in node.names()]
            assert len(holding) >= 2, "the one that had it keeps it until the other has it"
        centre.settle(1)
    assert len(new.names()) == 6
    assert sorted(len(each.names()) for each in centre.nodes) == [6, 6, 6]
    assert [len(centre.has(each)) for each in files] == [2] * 9
    assert rebalance(centre).tablets == 0


def test_what_is_on_its_way_is_left_alone(centre: CopyCentre):
    centre.add(), centre.add()
    for each in range(9):
        centre.load(partition=each)
    centre.settle()
    centre.add()
    assert rebalance(centre).tablets == 6
    again = rebalance(centre)
    assert (again.tablets, again.moving) == (0, 6)
    centre.add()
    assert rebalance(centre).tablets > 0, "of those that are whole"
    with centre.engine.reading() as state:
        rows = list(state.placement_table.rows.values())
    assert max(each.generation for each in rows) == 2, "none went twice"


def test_a_leader_that_has_all_of_it_leads_on(centre: CopyCentre):
    centre.add(), centre.add()
    for each in range(9):
        centre.load(partition=each)
    centre.settle()
    new = centre.add()
    rebalance(centre)
    with centre.engine.reading() as state:
        rows = list(state.placement_table.rows.values())
    moved = [each for each in rows if new.uuid in each.nodes]
    assert len(moved) == 6
    assert all(each.leader != new.uuid and each.generation == 2 for each in moved)


def test_what_was_placed_meanwhile_is_not_overruled(
    centre: CopyCentre, monkeypatch: pytest.MonkeyPatch
):
    centre.add(), centre.add()
    for each in range(9):
        centre.load(partition=each)
    centre.settle()
    centre.add()
    commit = Engine.commit

    def overtaken(engine: Engine, ops: Sequence[records.Op], *more: object) -> int:
        monkeypatch.setattr(Engine, "commit", commit)
        with engine.reading() as state:
            row = next(iter(state.placement_table.rows.values()))
        for other in ops:
            assert isinstance(other, records.TabletPlaced)
        first = ops[0]
        assert isinstance(first, records.TabletPlaced)
        engine.commit([records.TabletPlaced(first.tablet, 2, row.nodes, row.leader)])
        return engine.commit(ops)

    monkeypatch.setattr(Engine, "commit", overtaken)
    with pytest.raises(ConflictError, match="say it again"):
        rebalance(centre)
    with centre.engine.reading() as state:
        rows = list(state.placement_table.rows.values())
    assert sorted(each.generation for each in rows) == [1] * 8 + [2]
