"""What is said of a table comes to each node that has it, whoever was down; nothing goes back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from common import crash
from receiver.metadata.commit.table_creation import TableAlteration, alter_table, create_table
from receiver.metadata.state.tables.place_tables.tablets import LoadedTableRow
from receiver.tablet_copies.copies_wire import CopyOrder, TableAttributes
from tests.support.copy_nodes import CopyCentre, Machine
from tests.support.spark_world import World


@pytest.fixture
def centre(tmp_path: Path):
    centre = CopyCentre(tmp_path, lost_after=0.0)
    centre.add(2), centre.add()
    create_table(centre.engine, "root.wind", [0, 2, 4])
    centre.settle()
    yield centre
    centre.close()


def row(centre: CopyCentre) -> LoadedTableRow:
    with centre.engine.reading() as state:
        found = state.loaded_tables.named("root.wind")
    assert found is not None
    return found


def known(node: Machine) -> set[TableAttributes]:
    return {node.store.replica(each).attributes for each in node.store.tablets()}


def behind(centre: CopyCentre) -> frozenset[str] | None:
    return centre.assignment.behind(row(centre))


def test_a_new_ttl_comes_to_all_nodes_and_is_confirmed_by_their_reports(centre: CopyCentre):
    one, two = centre.nodes
    assert behind(centre) == frozenset()  # nothing was ever said
    commit = centre.engine.set_ttl("root.wind", 5000)
    assert behind(centre) is None
    centre.assignment.run_once()
    assert behind(centre) == {one.uuid, two.uuid}  # they have not reported it
    asked = len(centre.orders)
    centre.report()
    centre.assignment.run_once()
    assert behind(centre) == frozenset()
    assert known(one) == known(two) == {TableAttributes(version=commit, ttl=5000)}
    centre.settle()
    assert len(centre.orders) == asked  # once is enough


def test_who_looks_at_tables_sees_how_they_stand(centre: CopyCentre):
    def word() -> list[str]:
        with centre.engine.reading() as state:
            return list((state.loaded_tables.standings or {}).values())

    assert word() == ["running"]
    centre.nodes[1].stop()
    centre.engine.set_ttl("root.wind", 5000)
    centre.settle()
    assert word() == ["altering"]
    centre.nodes[1].start()
    centre.settle()
    assert word() == ["running"]
    create_table(centre.engine, "root.sun", [0, 2])
    centre.assignment.run_once()
    assert sorted(word()) == ["creating", "running"]


def test_a_node_that_was_down_is_told_when_it_comes_back_and_the_table_is_altering_until_then(
    centre: CopyCentre,
):
    one, two = centre.nodes
    two.stop()
    centre.engine.set_ttl("root.wind", 5000)
    centre.settle()
    assert behind(centre) == {two.uuid}
    alter_table(centre.engine, "root.wind", TableAlteration(replicas=2))
    two.start()
    centre.settle()
    assert behind(centre) == frozenset()
    newest = row(centre)
    assert (
        known(one) == known(two) == {TableAttributes(version=newest.version, ttl=5000, replicas=2)}
    )


def test_a_call_that_is_lost_is_made_again_and_one_that_comes_twice_is_one(centre: CopyCentre):
    one, _ = centre.nodes
    one.is_silent = True
    centre.engine.set_ttl("root.wind", 5000)
    centre.assignment.run_once()
    one.is_silent = False
    for _ in range(2):
        centre.now += 6.0
        centre.assignment.run_once()  # it has not reported: the same again
    centre.report()
    journal = list(one.paths[0].rglob("copies.log"))
    lines = [line for each in journal for line in each.read_text().splitlines() if "known" in line]
    assert len(lines) == len(journal)
    centre.settle()
    assert behind(centre) == frozenset()


def test_the_reports_decide_after_a_restart_of_the_master(centre: CopyCentre):
    two = centre.nodes[1]
    two.is_silent = True
    centre.engine.set_ttl("root.wind", 5000)
    centre.settle()
    centre.assignment.close()
    centre.engine.close()
    centre.world = World.reopened(centre.world.root)
    centre.live()
    assert behind(centre) is None
    orders = len(centre.orders)
    centre.report()
    centre.assignment.run_once()
    assert behind(centre) == {two.uuid}
    assert len(centre.orders) == orders  # who reports the version is not told of it
    two.is_silent = False
    centre.settle()
    assert behind(centre) == frozenset()


def test_what_is_known_outlives_the_node_and_never_goes_back(centre: CopyCentre):
    one, _ = centre.nodes
    centre.engine.set_ttl("root.wind", 5000)
    commit = centre.engine.newest_commit
    centre.settle()
    one.restart()
    assert known(one) == {TableAttributes(version=commit, ttl=5000)}
    [tablet, _] = one.store.tablets()
    with centre.engine.reading() as state:
        placed = state.placement_table.rows[tablet]
    older = TableAttributes(version=commit - 1, ttl=1)
    journals = [each.read_bytes() for each in sorted(one.paths[0].rglob("copies.log"))]
    one.store.make(
        [msgspec.structs.replace(centre.order(tablet, placed.generation), attributes=older)],
        centre.mark(),
    )
    assert [each.read_bytes() for each in sorted(one.paths[0].rglob("copies.log"))] == journals
    for generation in (placed.generation, placed.generation + 1):
        order = CopyOrder(
            tablet=tablet, generation=generation, table="root.wind", begin=0, end=2,
            attributes=older,
        )  # fmt: skip
        one.store.make([order], centre.mark())
        assert one.store.replica(tablet).attributes.ttl == 5000
    one.restart()
    assert one.store.replica(tablet).attributes.ttl == 5000


def test_a_directory_that_takes_its_first_file_later_knows_it_too(centre: CopyCentre):
    one, _ = centre.nodes
    centre.engine.set_ttl("root.wind", 5000)
    centre.settle()
    home, other = one.paths
    if not list(home.rglob("copies.log")):
        home, other = other, home
    one.free[home] = 0
    centre.load(0)
    centre.settle()
    assert list(other.rglob("copies.log"))
    one.stop()
    for each in home.rglob("copies.log"):
        each.unlink()
    one.start()
    [tablet] = one.store.tablets()
    assert one.store.replica(tablet).attributes.ttl == 5000


def test_a_death_behind_the_line_leaves_it_known_and_a_torn_one_is_asked_for_again(
    centre: CopyCentre,
):
    one, two = centre.nodes
    commit = centre.engine.set_ttl("root.wind", 5000)

    def die(here: str) -> None:
        if here == "copies.known":
            raise crash.SimulatedCrash(here)

    [first, _] = one.store.tablets()
    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        one.store.replica(first).know(TableAttributes(version=commit, ttl=5000))
    one.restart()
    assert one.store.replica(first).attributes.ttl == 5000
    centre.settle()
    assert behind(centre) == frozenset()
    two.stop()
    [journal, *_] = two.paths[0].rglob("copies.log")
    journal.write_bytes(journal.read_bytes().rstrip(b"\n")[:-3])
    two.start()
    assert len(known(two)) == 2
    centre.settle()
    assert known(two) == {TableAttributes(version=commit, ttl=5000)}
