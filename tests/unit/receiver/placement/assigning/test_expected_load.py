"""Tablets that are empty yet count for what is going to be in them."""

from __future__ import annotations

from receiver.placement.assigning.choosing_nodes import ChosenLoad, PlacementWish, chosen_nodes
from receiver.placement.assigning.expected_load import ExpectedLoad, PlacedTablet
from receiver.placement.placeable_nodes import PlaceableNode

GB = 1 << 30


def node(name: str, used: int) -> PlaceableNode:
    return PlaceableNode(name, f"host-{name}", url="http://x", free=1 << 50, used=used)


def midnight(tables: int, *, more_at_a: int) -> list[PlacedTablet]:
    """Each table has a tablet of yesterday, one of today that is empty, and half of them each."""
    return [
        PlacedTablet(f"{table}-{day}", f"t{table}", day, 0 if day else GB, () if day else place)
        for table in range(tables)
        for place in [("a",) if table < tables // 2 + more_at_a else ("b",)]
        for day in range(2)
    ]


def placed(every: list[PlacedTablet], *, in_one_pass: bool) -> list[str]:
    """Where tablets of today go; in a pass each, nodes have reported nothing new meanwhile."""
    used = {name: sum(each.size for each in every if name in each.nodes) for name in "ab"}
    nodes = {name: node(name, size) for name, size in used.items()}
    found: list[str] = []
    load = ChosenLoad(ExpectedLoad(lambda: every))
    for at, each in enumerate(every):
        if each.nodes:
            continue
        if not in_one_pass:
            load = ChosenLoad(ExpectedLoad(lambda: every))
        [name] = chosen_nodes(PlacementWish(each.tablet, 1, each.size, 1), nodes, load)
        every[at] = each._replace(nodes=(name,)) if not in_one_pass else each
        found.append(name)
    return found


def test_the_tablets_of_a_midnight_are_spread_though_one_node_has_fewer_bytes() -> None:
    for in_one_pass in (True, False):
        found = placed(midnight(20, more_at_a=0), in_one_pass=in_one_pass)
        assert found.count("a") == found.count("b") == 10
        found = placed(midnight(20, more_at_a=1), in_one_pass=in_one_pass)
        assert (found.count("a"), found.count("b")) == (9, 11)


def test_a_table_of_few_bytes_is_expected_to_have_few() -> None:
    """Nine small tables weigh as much as a ninth of a large one."""
    days = [PlacedTablet("large-0", "large", 0, 81 * GB, ("a",))]
    days += [PlacedTablet("large-1", "large", 1, 0, ("a",))]
    days += [PlacedTablet(f"{n}-0", f"small{n}", 0, GB, ("b",)) for n in range(9)]
    days += [PlacedTablet(f"{n}-1", f"small{n}", 1, 0, ()) for n in range(9)]
    assert set(placed(days, in_one_pass=True)) == {"b"}


def test_what_a_last_tablet_lacks_to_the_mean_of_its_table_is_still_to_come() -> None:
    every = [
        PlacedTablet("old", "t", 0, 2 * GB, ("a",)),
        PlacedTablet("short", "t", 1, 6 * GB, ("b",)),
        PlacedTablet("last", "t", 2, GB, ("c",)),
        PlacedTablet("first", "new", 0, 0, ("d",)),
    ]
    expected = ExpectedLoad(lambda: every)
    assert expected.of_node("a", 2 * GB) == 2 * GB
    assert expected.of_node("b", 0) == 6 * GB, "it has not reported them yet"
    assert expected.of_node("c", GB) == 3 * GB
    assert expected.of_node("c", 9 * GB) == 11 * GB, "it has what is not in the catalogue"
    assert expected.of_node("d", 0) == 3 * GB, "no table is known of that one: the mean of all"
    assert expected.of_tablet("last", GB) == 3 * GB
    assert expected.of_tablet("old", 2 * GB) == 2 * GB


def test_where_nothing_was_ever_loaded_tablets_are_counted() -> None:
    every = [PlacedTablet(str(each), "t", each, 0, ()) for each in range(10)]
    assert placed(every, in_one_pass=False).count("a") == 5
