"""Tables as operators make and alter them: by partitions or times, held against what is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common.errors import ConflictError
from receiver.metadata.model.errors import TableMissingError, TableRefusedError
from receiver.metadata.sql.parser import parse
from receiver.metadata.sql.statements import AlterTable, CreateTable
from receiver.node import Node
from receiver.operator.namespace.table_changes import change_table, make_table, table_standing
from receiver.operator.namespace.table_lists import list_tables, list_tablets
from receiver.operator.places.copies import copies_view, copy_concerns
from receiver.operator.sql_tables import tables_by_sql
from receiver.operator.views.table_views import TableChange, TableRequest
from tests.support.heard_nodes import SpeakingNode, tablet
from tests.support.node_world import World

DAY = 86_400_000


class Centre:
    def __init__(self, node: Node, root: Path) -> None:
        self.node = node
        self.nodes = [SpeakingNode(root / name, free=1 << 40) for name in ("one", "two")]
        for each in self.nodes:
            each.settle(node.nodes)

    def runs(self, table: str = "root.wind") -> list[tuple[int, int]]:
        page = list_tablets(self.node.operator, table)
        return [(each.begin, each.end) for each in page.tablets]


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Centre]:
    with World(tmp_path, nodes={"replicas": 2, "before_ack": 1}).still_node() as node:
        made = Centre(node, tmp_path)
        yield made
        for each in made.nodes:
            each.close()


def test_a_table_is_made_by_times_as_databases_number_their_partitions(centre: Centre):
    """Seven days are a partition where nothing else is configured."""
    there = centre.node.operator
    asked = TableRequest(name="root.wind", begin=8 * DAY, end=35 * DAY, every=14 * DAY, replicas=2)
    found = make_table(there, asked)
    assert centre.runs() == [(1, 3), (3, 5)]
    assert (found.state, found.tablets, found.placed, found.running) == ("creating", 2, 0, 0)
    assert (found.replicas, found.short) == (2, 2)
    change_table(there, "root.wind", TableChange(begin=35 * DAY, end=36 * DAY))
    assert centre.runs() == [(1, 3), (3, 5), (5, 6)]
    assert table_standing(there, found.id).tablets == 3


def test_a_table_runs_when_the_leaders_of_all_its_tablets_have_reported(centre: Centre):
    there = centre.node.operator
    make_table(there, TableRequest(name="root.wind", splits=(1, 2, 3)))
    assignment = centre.node.copies.assignment
    assignment.run_once()
    assert table_standing(there, "root.wind").placed == 2
    with centre.node.engine.reading() as state:
        rows = list(state.placement_table.rows.values())
    for count, row in enumerate(rows, 1):
        [leader] = [each for each in centre.nodes if each.uuid == row.leader]
        held = tablet(int(row.tablet, 16))
        leader.store.put(msgspec.structs.replace(held, generation=1, state="copying"))
        leader.settle(centre.node.nodes)
        assignment.run_once()
        found = table_standing(there, "root.wind")
        assert (found.running, found.state) == (count, "running" if count == 2 else "creating")
    assert found.short == 0


def test_a_table_is_altering_until_its_nodes_have_confirmed_what_is_known_of_it(centre: Centre):
    there = centre.node.operator
    made = make_table(there, TableRequest(name="root.wind", splits=(1, 2)))
    assignment = centre.node.copies.assignment

    def report(version: int) -> None:
        with centre.node.engine.reading() as state:
            [row] = state.placement_table.rows.values()
        held = msgspec.structs.replace(
            tablet(int(row.tablet, 16)), generation=1, version=version, state="copying"
        )
        for each in centre.nodes:
            each.store.put(held)
            each.settle(centre.node.nodes)
        assignment.run_once()

    def state() -> str:
        [listed] = list_tables(there).tables
        found = table_standing(there, made.id)
        assert listed.state == found.state
        return found.state

    assert state() == "creating"
    assignment.run_once()
    report(0)
    assert state() == "running"
    version = centre.node.engine.set_ttl("root.wind", 5000)
    assert state() == "altering"
    assert len(table_standing(there, made.id).behind) == 2
    assignment.run_once()
    assert state() == "altering"
    report(version)
    assert state() == "running"
    found = table_standing(there, made.id)
    assert (found.version, found.ttl, found.behind, found.newer) == (version, 5000, (), ())
    report(version + 5)
    assert len(table_standing(there, made.id).newer) == 2
    assert "2 replicas know more of their tables" in " ".join(copy_concerns(centre.node.copies))
    assert len(copies_view(there).newer) == 2


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"replicas": 3}, "storage nodes on 2 hosts"),
        ({"replicas": 0}, "before_ack waits for 1"),
        ({"begin": 5 * DAY, "end": 5 * DAY}, "is no time"),
        ({"begin": 0, "end": 70 * DAY, "every": 10 * DAY}, "multiple of partition_interval"),
        ({"begin": 0, "end": 70 * DAY, "every": 0}, "multiple of partition_interval"),
        ({"begin": 0, "end": 1 << 62}, "more than 10000 tablets"),
        ({"begin": 0}, "a begin and an end"),
        ({"every": 7 * DAY}, "a begin and an end"),
        ({"splits": (1, 2), "end": 7 * DAY}, "either splits or times"),
        ({"splits": (2, 1)}, "have to increase"),
    ],
)
def test_what_cannot_be_is_refused_whether_a_table_is_made_or_altered(
    centre: Centre, members: dict[str, object], said: str
):
    there = centre.node.operator
    with pytest.raises(TableRefusedError, match=said):
        make_table(there, msgspec.convert({"name": "root.wind", **members}, TableRequest))
    with pytest.raises(TableMissingError):
        table_standing(there, "root.wind")
    make_table(there, TableRequest(name="root.wind"))
    with pytest.raises(TableRefusedError, match=said):
        change_table(there, "root.wind", msgspec.convert(members, TableChange))
    assert centre.runs() == []


def test_a_node_that_is_down_counts_for_no_replica(centre: Centre):
    centre.node.nodes.timeout = -1.0
    with pytest.raises(TableRefusedError, match="on 0 hosts"):
        make_table(centre.node.operator, TableRequest(name="root.wind", replicas=2))


def test_where_no_copies_are_wanted_no_table_has_any(tmp_path: Path):
    with World(tmp_path).still_node() as node:
        there = node.operator
        with pytest.raises(TableRefusedError, match=r"nodes\.replicas is 0"):
            make_table(there, TableRequest(name="root.wind", replicas=1))
        found = make_table(there, TableRequest(name="root.wind", splits=(1, 2)))
        assert (found.state, found.replicas, found.short) == ("running", 0, 0)


def test_no_empty_tablet_is_made_where_a_node_has_one_that_was_forgotten_here(centre: Centre):
    there = centre.node.operator
    node = centre.nodes[0]
    node.store.put(tablet(7))
    node.settle(centre.node.nodes)
    centre.node.copies.assignment.run_once()
    asked = TableRequest(name="root.wind", splits=(1, 2))
    with pytest.raises(ConflictError, match="copies offered"):
        make_table(there, asked)
    make_table(
        there, TableRequest(name="root.wind")
    )  # no tablet, nothing that could be in its place
    with pytest.raises(ConflictError, match="copies offered"):
        change_table(there, "root.wind", TableChange(splits=(1, 2)))
    change_table(there, "root.wind", TableChange(splits=(1, 2), despite_offers=True))
    assert centre.runs() == [(1, 2)]


def test_statements_make_and_alter_by_the_path_of_a_table(centre: Centre):
    def say(text: str) -> str:
        statement = parse(text)
        assert isinstance(statement, CreateTable | AlterTable)
        return tables_by_sql(centre.node.operator, statement)

    said = say("create table root.wind with (replicas = 2, partitions from 0 to 14 every 14d)")
    assert "1 tablet, 2 replicas of each, creating" in said
    assert centre.runs() == [(0, 1)]
    assert "2 tablets" in say("alter table root.wind add partitions at (5, 6)")
    say("alter table root.wind set replicas = 1")
    assert table_standing(centre.node.operator, "root.wind").replicas == 1
    say("alter table root.wind set replicas = default")
    assert table_standing(centre.node.operator, "root.wind").replicas == 2
    say("create table root.`/plant` with (partitions at (1, 2))")
    assert centre.runs("plant") == [(1, 2)]
    with pytest.raises(TableRefusedError, match="no directory is called"):
        say("create table root.`a.b`")
