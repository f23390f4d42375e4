"""The calls about tablets of a node: orders by the master's key alone, bytes by a ticket alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common.digests import md5
from receiver.heartbeats.node_wire import MasterMark
from receiver.storagenode.node_web import tablet_calls
from receiver.storagenode.node_web.node_app import ServedNode
from receiver.tablet_copies.copies_wire import (
    CopiedFile,
    CopyOrder,
    CopyOrders,
    DropOrder,
    DropOrders,
    KeptFiles,
)
from receiver.tablet_copies.read_tickets import TicketMaker
from tests.unit.receiver.storagenode.node_web.test_node_app import config_of

TABLET, OTHER = "a" * 32, "b" * 32
CONTENT = bytes(range(200))
NAME = "sequence/root.t/0/0/1-1-0-0.tsfile"
MASTER = MasterMark(engine="e" * 32, commit=9)
MAKE = CopyOrders(
    master=MASTER,
    tablets=[CopyOrder(tablet=TABLET, generation=1, table="root.t", begin=0, end=1)],
)
DROP = DropOrders(master=MASTER, tablets=[DropOrder(tablet=TABLET, generation=1)])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedNode]:
    made = ServedNode(config_of(tmp_path), lambda: None)
    made.node.copies._keep_free = 0
    yield made
    made.close()


def post(served: ServedNode, path: str, body: object, key: str | None = None) -> int:
    headers = {"Authorization": f"Bearer {served.node.call_key if key is None else key}"}
    client = served.application.test_client()
    return client.post(path, data=msgspec.json.encode(body), headers=headers).status_code


def test_the_masters_orders_are_carried_out_and_nobody_elses(served: ServedNode):
    assert post(served, "/node/v1/tablets", MAKE, "other") == 401
    assert post(served, "/node/v1/tablets", {"x": 1}) == 400
    assert served.node.copies.tablets() == []
    for _ in range(2):
        assert post(served, "/node/v1/tablets", MAKE) == 204
    assert served.node.copies.tablets() == [TABLET]
    assert post(served, "/node/v1/tablets/drop", DROP, "other") == 401
    for _ in range(2):
        assert post(served, "/node/v1/tablets/drop", DROP) == 204
    assert served.node.copies.tablets() == []


def test_bytes_are_given_for_a_ticket_of_their_tablet(served: ServedNode):
    post(served, "/node/v1/tablets", MAKE)
    file = CopiedFile(
        physical=NAME,
        size=len(CONTENT),
        md5=md5(CONTENT).hexdigest(),
        commit=5,
        sender="c" * 32,
        path=NAME,
    )
    served.node.copies.replica(TABLET).receive(0, file, [CONTENT])
    maker = TicketMaker()
    served.node.tickets.take(maker.key_for("n", "b"))
    client = served.application.test_client()

    def get(tablet: str, begin: object, length: object, ticket: str | None, path: str = NAME):
        query = {"tablet": tablet, "path": path, "begin": begin, "length": length}
        headers = {} if ticket is None else {"Tsferry-Ticket": ticket}
        return client.get("/node/v1/content", query_string=query, headers=headers)

    ticket = maker.ticket("n", TABLET)
    assert get(TABLET, 10, 20, ticket).get_data() == CONTENT[10:30]
    assert get(TABLET, 190, 99999, ticket).get_data() == CONTENT[190:]
    for wrong in (None, "", maker.ticket("n", OTHER)):
        assert get(TABLET, 0, 1, wrong).status_code == 403
    assert get(OTHER, 0, 1, maker.ticket("n", OTHER)).status_code == 404
    assert get(TABLET, 0, 1, ticket, "../../../../etc/passwd").status_code == 404
    assert get(TABLET, 0, 1, ticket, "copies.log").status_code == 404
    query = {"tablet": TABLET, "path": NAME}
    doubted = "/node/v1/content/doubted"
    assert client.post(doubted, query_string=query).status_code == 403
    answer = client.post(doubted, query_string=query, headers={"Tsferry-Ticket": ticket})
    assert answer.status_code == 204
    assert [*served.node.scrub._asked] == [(TABLET, NAME)]
    for begin, length in ((200, 1), (-1, 5), ("x", 1), (0, 0), (10**30, 1)):
        assert get(TABLET, begin, length, ticket).status_code == 400


def test_what_is_here_of_a_tablet_is_told_to_the_master_in_pages(
    served: ServedNode, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tablet_calls, "_KEPT", 2)
    served.node.copies.make(MAKE.tablets, MASTER)
    replica = served.node.copies.replica(TABLET)
    files = []
    for number in range(1, 4):
        name = NAME.replace("1-1", f"{number}-{number}")
        file = CopiedFile(
            physical=name,
            size=len(CONTENT),
            md5=md5(CONTENT).hexdigest(),
            commit=number,
            sender="b" * 32,
            path=name,
        )
        replica.receive(0, file, [CONTENT])
        files.append(file)
    client = served.application.test_client()

    def ask(after: str = "", key: str = "", tablet: str = TABLET) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {key or served.node.call_key}"}
        query = {"tablet": tablet, "after": after}
        got = client.get("/node/v1/tablets/files", query_string=query, headers=headers)
        return got.status_code, got.data

    assert ask(key="other")[0] == 401
    assert ask(tablet=OTHER)[0] == 404
    page = msgspec.json.decode(ask()[1], type=KeptFiles)
    assert page == KeptFiles(table="root.t", files=tuple(files[:2]), next=files[1].physical)
    page = msgspec.json.decode(ask(page.next or "")[1], type=KeptFiles)
    assert page == KeptFiles(table="root.t", files=(files[2],))
