"""Which node an edge is sent to: one of the tablet that runs, lives, and has room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common import wire
from common.errors import NotFoundError
from receiver.placement.node_orders import NodeOrders
from receiver.placement.upload_nodes import UploadNodes
from receiver.tablet_copies.read_tickets import TicketKeys, TicketMaker
from receiver.tablet_copies.upload_tickets import file_of_ticket
from tests.support.copy_nodes import CopyCentre, Machine

ENTRY = wire.PlanEntry(
    path="sequence/root.wind/0/0/9-9-0-0.tsfile", size=5000, tail="t" * 32, md5="m" * 32
)
EDGE, TASK = "e" * 32, "1" * 32


class Offers:
    def __init__(self, centre: CopyCentre) -> None:
        self.centre = centre
        self.maker = TicketMaker()
        self.keys: dict[str, TicketKeys] = {}
        self.nodes = UploadNodes(
            centre.engine,
            lambda: {each.uuid: each.view() for each in centre.nodes},
            self.maker,
            NodeOrders(),
            least=1000,
        )

    def hand_keys(self) -> None:
        for each in self.centre.nodes:
            keys = self.keys.setdefault(each.uuid, TicketKeys())
            keys.take(self.maker.key_for(each.uuid, "boot"))

    def offer(self, *avoid: str, **more: object) -> wire.UploadNode | None:
        entry = msgspec.structs.replace(ENTRY, **more)
        return self.nodes.offer(EDGE, TASK, entry, avoid)

    def leader(self) -> Machine:
        [tablet] = self.centre.tablets()
        with self.centre.engine.reading() as state:
            row = state.placement_table.rows[tablet]
        return next(each for each in self.centre.nodes if each.uuid == row.leader)


@pytest.fixture
def offers(tmp_path: Path) -> Iterator[Offers]:
    centre = CopyCentre(tmp_path)
    centre.add(), centre.add(), centre.add()
    yield Offers(centre)
    centre.close()


def test_a_file_goes_to_the_leader_of_its_tablet_with_a_ticket_for_it_alone(offers: Offers):
    offers.hand_keys()
    assert offers.offer() is None  # there is no such tablet yet
    offers.centre.load()
    offers.centre.assignment.run_once()
    assert offers.offer() is None  # it does not run
    offers.centre.settle()
    found = offers.offer()
    leader = offers.leader()
    assert found is not None
    assert (found.uuid, found.url) == (leader.uuid, f"http://{leader.host}")
    assert found.lasts > 400
    file = file_of_ticket(offers.keys[leader.uuid].check_upload(found.ticket))
    [tablet] = offers.centre.tablets()
    assert (file.node, file.sender, file.task) == (leader.uuid, EDGE, TASK)
    assert (file.path, file.size, file.tail, file.md5) == (
        ENTRY.path,
        ENTRY.size,
        ENTRY.tail,
        ENTRY.md5,
    )
    assert (file.tablet, file.generation) == (tablet, 1)


def test_what_is_small_or_has_no_name_comes_to_the_master(offers: Offers):
    offers.centre.load()
    offers.centre.settle()
    assert offers.offer() is None  # no node has a key yet
    offers.hand_keys()
    assert offers.offer(size=1000) is not None
    assert offers.offer(size=999) is None
    assert offers.offer(path="../../etc/passwd") is None
    assert offers.offer(path="sequence/root.sun/0/0/9-9-0-0.tsfile") is None


def test_a_node_that_is_of_no_use_is_passed_over(offers: Offers):
    offers.centre.load()
    offers.centre.settle()
    offers.hand_keys()
    leader = offers.leader()
    other = next(
        each
        for each in offers.centre.nodes
        if each is not leader and each.uuid in offers.centre.placed()
    )

    def is_passed_over() -> bool:
        found = offers.offer()
        return found is not None and found.uuid == other.uuid

    assert not is_passed_over()
    leader.is_silent = True
    assert is_passed_over()
    leader.is_silent, leader.is_hurt = False, True
    assert is_passed_over()
    leader.is_hurt = False
    offers.centre.draining = {leader.uuid}
    assert is_passed_over()
    offers.centre.draining, offers.centre.lost = set(), {leader.uuid}
    assert is_passed_over()
    offers.centre.lost = set()
    leader.free = dict.fromkeys(leader.free, 100)
    assert is_passed_over()
    found = offers.offer(other.uuid)
    assert found is None


def test_what_is_at_a_node_that_nobody_knows_is_not_read(offers: Offers):
    for uuid in ("9" * 32, offers.centre.nodes[0].uuid):
        offers.centre.lost = {offers.centre.nodes[0].uuid}
        with pytest.raises(NotFoundError):
            offers.nodes.read(uuid, EDGE, ENTRY, 0, 10)
