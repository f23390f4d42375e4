import pytest

from common import wire
from common.errors import UsageError
from receiver.metadata.model import records
from receiver.operator.directories import look
from receiver.operator.edges.fleet import EDGE_ORDERS, edge_row, list_fleet
from receiver.operator.edges.senders import list_running_senders, senders_named
from receiver.operator.list_asked import ListAsked
from tests.support.node_world import A, B, Edge, World, path_of, tsfile

C = "c" * 32


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def node(world):
    with world.node() as node:
        Edge(node, uuid=A).round({path_of(1): tsfile("root.sg.d1")})
        edge = Edge(node, uuid=B)
        edge.round({path_of(n): tsfile("root.sg.d2", first=n) for n in (2, 3)})
        node.edges = (edge,)
        Edge(node, uuid=C).check()
        yield node


def uuids(page):
    return [each.view.uuid for each in page.edges]


def test_an_edge_is_told_as_the_list_of_all_tells_it(node):
    every = {each.uuid: each for each in list_running_senders(node.operator)}
    page = list_fleet(node.operator)
    assert {each.view.uuid: each.view for each in page.edges} == every
    assert edge_row(node.operator, A).view == every[A]
    assert edge_row(node.operator, "d" * 32) is None
    assert senders_named(node.operator, [B, "d" * 32]) == [every[B]]


def test_without_a_server_the_directories_tell(node, world):
    node.close()
    with look(world.config) as there:
        assert set(uuids(list_fleet(there))) == {A, B, C}


@pytest.mark.parametrize("order", EDGE_ORDERS)
def test_every_order_has_all_and_its_reverse(node, order):
    up, down = (
        list_fleet(node.operator, ListAsked(order=order, descending=each)) for each in (False, True)
    )
    assert set(uuids(up)) == set(uuids(down)) == {A, B, C}
    assert (
        list_fleet(node.operator, ListAsked(order="files", descending=True)).edges[0].view.uuid == B
    )
    with pytest.raises(UsageError, match="expected one of"):
        list_fleet(node.operator, ListAsked(order=f"{order}?"))


def test_a_page_is_a_part_of_all(node):
    every = uuids(list_fleet(node.operator))
    parts = [list_fleet(node.operator, ListAsked(first=n, count=2)) for n in (0, 2, 4)]
    assert [uuids(each) for each in parts] == [every[:2], every[2:], []]
    assert {(each.found, each.known) for each in parts} == {(3, 3)}


def test_trouble_is_named_and_the_worst_stands_first(node):
    refused = records.QuarantinePut(
        sender=A,
        path=path_of(8),
        digest="0" * 32,
        size=1,
        hold=True,
        reason="z",
        device=None,
        kept=None,
    )
    lost = records.FileLost(
        sender=A, path=path_of(9), md5="0" * 32, size=5, first=1, last=2, reason="gone"
    )
    node.engine.commit([refused, lost])
    page = list_fleet(node.operator, ListAsked(troubled=True))
    assert [(each.view.uuid, each.troubles) for each in page.edges] == [
        (A, ("1 lost", "1 in quarantine"))
    ]
    assert (page.found, page.known, page.troubled) == (1, 3, 1)


def test_one_that_lists_nothing_and_has_files_is_named(node):
    (edge,) = node.edges
    edge.round({}, [path_of(2), path_of(3)])
    found = {each.view.uuid: each.troubles for each in list_fleet(node.operator).edges}
    assert found == {A: (), B: ("lists nothing",), C: ()}


def test_a_search_is_for_label_uuid_and_folder(node):
    with node.engine.reading() as state:
        folder = state.senders[A].directory
    node.engine.commit([records.SenderSeen(A, "Werk ÄÖ 7", folder)])
    for text in ("werk äö", "ÄÖ", A[:9], folder):
        assert uuids(list_fleet(node.operator, ListAsked(search=text))) == [A]
    assert uuids(list_fleet(node.operator, ListAsked(search="nothing"))) == []


def test_what_an_edge_says_of_itself_is_what_it_is_sorted_by(node):
    for uuid, pending in ((A, 5), (B, 9), (C, 7)):
        beat = wire.Heartbeat(version="1", pending_files=pending)
        node.checks.heartbeat(Edge(node, uuid=uuid).who, uuid, beat)
    assert uuids(list_fleet(node.operator, ListAsked(order="pending", descending=True))) == [
        B,
        C,
        A,
    ]
