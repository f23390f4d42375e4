"""A tablet is made for the first file that is planned of it, and nobody waits long for that."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common import wire
from receiver.metadata.model import records
from receiver.placement.assigning.assignment import AssignmentPass
from receiver.placement.assigning.first_tablets import FirstTablets
from receiver.placement.node_orders import NodeOrders
from receiver.placement.upload_nodes import UploadNodes
from receiver.tablet_copies.read_tickets import TicketMaker
from tests.support.copy_nodes import CopyCentre
from tests.support.spark_world import NORTH

ENTRY = wire.PlanEntry(
    path="sequence/root.wind/0/7/9-9-0-0.tsfile", size=5000, tail="t" * 32, md5="m" * 32
)


class Passes:
    """The real assignment, a pass and the reports behind it with each wait."""

    def __init__(self, centre: CopyCentre) -> None:
        self.centre = centre
        self.count = self.waits = 0
        self.works = True

    @property
    def last(self) -> AssignmentPass:
        return self.centre.assignment.last

    def wake(self) -> None:
        """A pass comes by itself."""

    def wait_for_pass(self, after: int, seconds: float) -> int:
        if after < 0:
            return self.count
        self.waits += 1
        self.centre.now += min(seconds, 0.5)
        if self.works:
            self.centre.assignment.run_once()
            self.centre.report()
        self.count += 1
        return self.count


class Planned:
    def __init__(self, centre: CopyCentre) -> None:
        self.centre = centre
        self.passes = Passes(centre)
        tickets = TicketMaker()
        for each in centre.nodes:
            tickets.key_for(each.uuid, "boot")

        def nodes() -> dict[str, object]:
            return {each.uuid: each.view() for each in centre.nodes}

        first = FirstTablets(centre.engine, nodes, self.passes, monotonic=lambda: centre.now)  # type: ignore[arg-type]
        self.nodes = UploadNodes(
            centre.engine, nodes, tickets, NodeOrders(), least=1000, first=first  # type: ignore[arg-type]
        )  # fmt: skip

    def plan(self, partition: int, group: str = "root.wind", size: int = 5000) -> str | None:
        path = f"sequence/{group}/0/{partition}/9-9-0-0.tsfile"
        entry = msgspec.structs.replace(ENTRY, path=path, size=size)
        self.nodes.prepare(NORTH, [entry])
        found = self.nodes.offer(NORTH, "1" * 32, entry, ())
        return None if found is None else found.uuid

    def partitions(self) -> list[int]:
        with self.centre.engine.reading() as state:
            return sorted(each.begin for each in state.tablet_table.rows.values())


@pytest.fixture
def planned(tmp_path: Path) -> Iterator[Planned]:
    centre = CopyCentre(tmp_path)
    centre.add(), centre.add()
    centre.load(0)
    centre.settle()
    yield Planned(centre)
    centre.close()


def test_the_first_file_of_a_partition_goes_to_the_leader_of_its_new_tablet(planned: Planned):
    node = planned.plan(1)
    assert planned.partitions() == [0, 1]
    with planned.centre.engine.reading() as state:
        [made] = [each for each in state.tablet_table.rows.values() if each.begin == 1]
        assert state.placement_table.rows[made.id].leader == node
    physical = planned.centre.load(1)
    planned.centre.settle()
    assert node in planned.centre.has(physical)
    waits = planned.passes.waits
    assert planned.plan(1) == node
    assert planned.passes.waits == waits  # it runs: nobody waits


def test_where_the_table_is_not_there_or_the_file_is_small_nothing_is_made(planned: Planned):
    assert planned.plan(1, "root.sun") is None
    assert planned.plan(1, size=10) is None
    assert planned.partitions() == [0]
    assert planned.passes.waits == 0


def test_a_tablet_that_takes_too_long_is_waited_for_once_a_minute(planned: Planned):
    planned.passes.works = False
    begin = planned.centre.now
    assert planned.plan(1) is None
    assert planned.centre.now - begin == 2.0
    waits = planned.passes.waits
    assert planned.plan(1) is None
    assert planned.passes.waits == waits
    planned.passes.works = True
    planned.centre.now += 61
    assert planned.plan(1) is not None


def test_without_a_node_that_takes_files_nobody_waits_and_nothing_is_made(planned: Planned):
    for each in planned.centre.nodes:
        each.is_silent = True
    assert planned.plan(1) is None
    assert (planned.partitions(), planned.passes.waits) == ([0], 0)


def test_nothing_is_made_in_the_place_of_what_nodes_offer(planned: Planned):
    node = planned.centre.nodes[0]
    order = planned.centre.order(planned.centre.tablets()[0])
    node.store.make([msgspec.structs.replace(order, tablet="f" * 32)], planned.centre.mark())
    planned.centre.settle()
    assert planned.plan(1) is None
    assert planned.partitions() == [0]


def test_an_edge_that_is_weeks_behind_has_a_few_made_at_once_and_one_that_sends_none_not_many(
    planned: Planned,
):
    entries = [
        msgspec.structs.replace(ENTRY, path=f"sequence/root.wind/0/{number}/9-9-0-0.tsfile")
        for number in range(1, 10)
    ]
    planned.nodes.prepare(NORTH, entries)
    assert planned.partitions() == [0, 1, 2, 3, 4]
    numbers = itertools.count(1000)
    for number in itertools.islice(numbers, 120):
        planned.plan(number)
    assert len(planned.partitions()) == 101
    planned.centre.load(1000)  # one of them is empty no more
    assert planned.plan(next(numbers)) is not None
    assert len(planned.partitions()) == 102
    with planned.centre.engine.reading() as state:
        [dropped] = [row.id for row in state.tablet_table.rows.values() if row.begin == 1001]
    planned.centre.engine.commit([records.TabletDropped(dropped)])  # nothing came to it for days
    assert planned.plan(next(numbers)) is not None
    assert planned.plan(next(numbers)) is None


def test_a_file_that_is_loaded_already_makes_nothing(planned: Planned):
    planned.centre.load(5)
    with planned.centre.engine.reading() as state:
        [row] = [each for each in state.files.values() if "/0/5/" in each.physical]
    entry = msgspec.structs.replace(ENTRY, path=row.path)
    planned.passes.works = False
    planned.nodes.prepare(NORTH, [entry])
    assert planned.passes.waits == 0


def test_a_table_that_goes_while_its_tablet_is_waited_for_is_waited_for_no_more(planned: Planned):
    engine = planned.centre.engine
    run_once = planned.centre.assignment.run_once

    def deleted() -> AssignmentPass:
        with engine.reading() as state:
            table = state.loaded_tables.named("root.wind")
            gone = [records.FileDeleted(each, "operator") for each in state.files]
        if table is not None:
            engine.commit([*gone, records.TableDropped(table.id)])
        return run_once()

    planned.centre.assignment.run_once = deleted  # type: ignore[method-assign]
    assert planned.plan(1) is None
    assert planned.passes.waits == 1
