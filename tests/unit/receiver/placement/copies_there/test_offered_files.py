"""What nodes have and a restored master does not know is offered, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common.errors import NotFoundError, UnreachableError
from receiver.metadata.commit.table_creation import TableAlteration, alter_table, create_table
from receiver.placement.copies_there.offered_files import OfferedFiles
from receiver.placement.placeable_nodes import PlaceableNode
from receiver.tablet_copies.copies_wire import CopyOrder, KeptFiles, TableAttributes
from receiver.tablet_copies.read_tickets import TicketMaker
from tests.support.copy_nodes import CopyCentre, Machine, ident
from tests.support.spark_world import World


class Asked:
    """Nodes that are asked without a server, a page of two files at a time."""

    def __init__(self, centre: CopyCentre) -> None:
        self.centre = centre
        self.asked: list[str] = []
        self.silent: set[str] = set()

    def _node(self, node: PlaceableNode) -> Machine:
        if node.uuid in self.silent:
            raise UnreachableError("it does not answer")
        return next(each for each in self.centre.nodes if each.uuid == node.uuid)

    def kept(self, node: PlaceableNode, tablet: str, after: str | None) -> KeptFiles:
        self.asked.append(tablet)
        replica = self._node(node).store.replica(tablet)
        files = replica.files()
        behind = sorted(each for each in files if each > (after or ""))
        some = behind[:2]
        return KeptFiles(
            table="root.wind",
            attributes=replica.attributes,
            files=tuple(files[each] for each in some),
            next=some[-1] if len(behind) > 2 else None,
        )

    def content(
        self, node: PlaceableNode, ticket: str, tablet: str, physical: str, begin: int, length: int
    ) -> bytes:
        fd, _ = self._node(node).store.replica(tablet).open_file(physical)
        try:
            return os.pread(fd, length, begin)
        finally:
            os.close(fd)


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[CopyCentre]:
    made = CopyCentre(tmp_path)
    yield made
    made.close()


def offers(centre: CopyCentre, calls: Asked) -> OfferedFiles:
    tickets = TicketMaker(monotonic=lambda: centre.now)
    for each in centre.nodes:
        tickets.key_for(each.uuid, ident(each.instance))
    return OfferedFiles(
        centre.engine,
        lambda: {each.uuid: each.view() for each in centre.nodes},
        centre.every,
        centre.lists,
        tickets,
        calls,
    )


def names(found: OfferedFiles, most: int = 100) -> list[str]:
    return sorted(each.file.physical for each in found.find(most)[0])


def test_what_a_master_has_forgotten_is_offered_once_and_what_it_knows_is_not(centre: CopyCentre):
    one, two = centre.add(), centre.add()
    files = [centre.load() for _ in range(5)]
    centre.settle()
    calls = Asked(centre)
    found = offers(centre, calls)
    assert names(found) == []
    assert calls.asked == []  # lists that are the same are not read
    for each in files[:3]:
        centre.end(each)
    centre.report()
    assert names(found) == sorted(files[:3])
    assert len(names(found, most=2)) == 2
    (first, *_), silent = found.find(100)
    assert silent == []
    assert first.table == "root.wind"
    content = found.content(first.node, first.tablet, first.file.physical, 3, 10)
    assert content == centre.content(first.file.physical)[3:13]
    assert len(one.names()) == len(two.names()) == 5  # nothing goes


def test_a_tablet_that_the_master_does_not_know_is_offered_whole(centre: CopyCentre):
    node = centre.add()
    physical = centre.load()
    centre.settle()
    [tablet] = node.store.tablets()
    file = node.store.replica(tablet).files()[physical]
    content = centre.content(physical)
    other = msgspec.structs.replace(
        file,
        physical=physical.replace("/0/0/", "/0/9/"),
        path=file.path.replace("/0/0/", "/0/9/"),
        commit=file.commit + 5,
    )
    order = CopyOrder(tablet="f" * 32, generation=1, table="root.wind", begin=9, end=10)
    node.store.make([order], centre.mark())
    node.store.replica("f" * 32).receive(0, other, [content])
    centre.report()
    assert names(offers(centre, Asked(centre))) == [other.physical]


def test_what_came_again_under_another_name_is_known(centre: CopyCentre):
    node = centre.add()
    physical = centre.load()
    centre.settle()
    [tablet] = node.store.tablets()
    file = node.store.replica(tablet).files()[physical]
    again = msgspec.structs.replace(file, physical=physical.replace(".tsfile", ".x.tsfile"))
    node.store.replica(tablet).receive(0, again, [centre.content(physical)])
    centre.report()
    assert names(offers(centre, Asked(centre))) == []


def test_nodes_that_do_not_answer_are_named(centre: CopyCentre):
    one, two, three = centre.add(), centre.add(), centre.add()
    physical = centre.load()
    centre.settle()
    centre.end(physical)
    centre.report()
    calls = Asked(centre)
    holding = [each for each in centre.nodes if physical in each.names()]
    calls.silent = {holding[0].uuid}
    found = offers(centre, calls)
    assert names(found) == [physical]
    assert found.find(9)[1] == [holding[0].uuid]
    holding[1].is_silent = True
    assert names(found) == []
    assert set(found.find(9)[1]) == {each.uuid for each in holding}
    centre.lost.add(holding[1].uuid)
    assert found.find(9)[1] == [holding[0].uuid]
    with pytest.raises(NotFoundError):
        found.content("9" * 32, "f" * 32, physical, 0, 1)
    assert {one.uuid, two.uuid, three.uuid} >= {each.uuid for each in holding}


def test_a_node_whose_list_goes_in_a_circle_holds_nobody_up(centre: CopyCentre):
    node = centre.add()
    physical = centre.load()
    centre.settle()
    centre.end(physical)
    centre.report()

    class Circling(Asked):
        def kept(self, node: PlaceableNode, tablet: str, after: str | None) -> KeptFiles:
            return KeptFiles(table="root.wind", next="sequence/x")

    found, silent = offers(centre, Circling(centre)).find(9)
    assert (found, silent) == ([], [node.uuid])


def test_what_was_said_of_a_table_is_offered_where_it_is_forgotten_here(
    centre: CopyCentre, tmp_path: Path
):
    """A TTL that a restored master has not would have what was to go come back for good."""
    centre.add(), centre.add()
    create_table(centre.engine, "root.wind", [0, 2])
    centre.settle()
    home = centre.world.root / "schema"
    centre.engine.close()
    shutil.copytree(home, tmp_path / "copy")
    centre.world = World.reopened(centre.world.root)
    centre.live()
    centre.engine.set_ttl("root.wind", 5000)
    alter_table(centre.engine, "root.wind", TableAlteration(replicas=1))
    altered = centre.engine.newest_commit
    centre.settle()
    [known] = [each for each in centre.nodes if each.store.tablets()]
    centre.engine.close()
    shutil.rmtree(home)
    shutil.copytree(tmp_path / "copy", home)
    centre.world = World.reopened(centre.world.root)
    centre.live()
    known.restart()
    centre.settle()
    calls = Asked(centre)
    [found] = offers(centre, calls).tables()
    assert (found.node, found.table) == (known.uuid, "root.wind")
    assert found.attributes == TableAttributes(version=altered, ttl=5000, replicas=1)
    assert (known.uuid, centre.tablets()[0]) in centre.assignment.last.newer
    assert known.store.replica(centre.tablets()[0]).attributes == found.attributes  # not taken back
    centre.engine.set_ttl("root.wind", 5000)
    alter_table(centre.engine, "root.wind", TableAlteration(replicas=1))
    centre.settle()
    assert offers(centre, calls).tables() == []
    assert centre.assignment.last.newer == frozenset()


def test_of_a_tablet_that_is_not_known_the_table_is_told_by_the_newest_that_any_node_knows(
    centre: CopyCentre,
):
    one, two = centre.add(), centre.add()
    for node, version in ((one, 7), (two, 9)):
        order = CopyOrder(
            tablet="f" * 32,
            generation=1,
            table="root.wind",
            begin=9,
            end=10,
            attributes=TableAttributes(version=version, ttl=version),
        )
        node.store.make([order], centre.mark())
    centre.report()
    calls = Asked(centre)
    [found] = offers(centre, calls).tables()
    assert (found.node, found.attributes.ttl) == (two.uuid, 9)
    assert names(offers(centre, calls)) == []  # it is empty, and made nothing
    calls.silent.add(two.uuid)
    [found] = offers(centre, calls).tables()
    assert found.attributes.ttl == 7
