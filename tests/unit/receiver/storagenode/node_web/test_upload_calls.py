"""Uploads at a node over HTTP: a good ticket of this file opens them, and nothing else does."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from werkzeug.test import TestResponse

from common.digests import md5, xxh3_128
from common.errors import ForbiddenError
from receiver.storagenode.node_web.node_app import ServedNode
from receiver.storagenode.upload_door import UploadDoor
from receiver.tablet_copies.read_tickets import TicketKeys, TicketMaker
from receiver.tablet_copies.upload_tickets import SentFile, file_of_ticket
from receiver.web.server import RequestHead
from tests.unit.receiver.storagenode.node_web.test_node_app import config_of
from tests.unit.receiver.storagenode.node_web.test_tablet_calls import MAKE, post
from tests.unit.receiver.storagenode.test_staged_uploads import (
    CONTENT,
    MD5,
    PATH,
    order,
    sent,
)

SENDER = "c" * 32
FILES = "/sync/v1/files"


class Caller:
    """An edge at a node, with the master's tickets."""

    def __init__(self, served: ServedNode) -> None:
        self.served = served
        self.maker = TicketMaker()
        served.node.tickets.take(self.maker.key_for("n", "b"))
        self.client = served.application.test_client()

    def ticket(self, **more: object) -> str:
        file = sent(node=self.served.node.home.start.uuid, **more)
        made = self.maker.upload_ticket("n", file.written())
        assert made is not None
        return made[0]

    def call(
        self, method: str, path: str, ticket: str | None, *, body: bytes = b"", **headers: str
    ) -> TestResponse:
        given = {"Tus-Resumable": "1.0.0", "Tsferry-Sender": SENDER}
        given |= {} if ticket is None else {"Tsferry-Ticket": ticket}
        given |= {name.replace("_", "-"): each for name, each in headers.items()}
        return self.client.open(path, method=method, headers=given, data=body)

    def begin(self, ticket: str | None, **headers: str) -> TestResponse:
        path = base64.b64encode(PATH.encode()).decode()
        given = {"Upload_Length": str(len(CONTENT)), "Upload_Metadata": f"path {path}", **headers}
        return self.call("POST", FILES, ticket, **given)

    def patch(
        self, where: str, ticket: str | None, offset: int, block: bytes, **headers: str
    ) -> TestResponse:
        checksum = base64.b64encode(xxh3_128(block)).decode()
        given = {
            "Content_Type": "application/offset+octet-stream",
            "Upload_Offset": str(offset),
            "Upload_Checksum": f"xxh3_128 {checksum}",
            **headers,
        }
        return self.call("PATCH", where, ticket, body=block, **given)


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Caller]:
    served = ServedNode(config_of(tmp_path), lambda: None)
    served.node.copies._keep_free = 0
    post(served, "/node/v1/tablets", MAKE)
    yield Caller(served)
    served.close()


def test_a_file_comes_in_blocks_and_the_master_alone_reads_it(caller: Caller):
    ticket = caller.ticket()
    made = caller.begin(ticket)
    assert (made.status_code, made.headers["Upload-Offset"]) == (201, "0")
    where = made.headers["Location"]
    answer = caller.patch(where, ticket, 0, CONTENT[:2000])
    assert (answer.status_code, answer.headers["Upload-Offset"]) == (204, "2000")
    assert caller.call("HEAD", where, ticket).headers["Upload-Offset"] == "2000"
    assert caller.begin(ticket).headers["Upload-Offset"] == "2000"  # the same one
    digest = base64.b64encode(bytes.fromhex(MD5)).decode()
    answer = caller.patch(where, ticket, 2000, CONTENT[2000:], Repr_Digest=f"md5=:{digest}:")
    assert answer.headers["Upload-Offset"] == str(len(CONTENT))

    query = {"upload": where.rpartition("/")[2], "begin": 10, "length": 20}
    key = {"Authorization": f"Bearer {caller.served.node.call_key}"}
    got = caller.client.get("/node/v1/staged", query_string=query, headers=key)
    assert got.get_data() == CONTENT[10:30]
    assert got.headers["ETag"] == f'"{MD5}"'
    for headers in ({}, {"Authorization": "Bearer x"}, {"Tsferry-Ticket": ticket}):
        refused = caller.client.get("/node/v1/staged", query_string=query, headers=headers)
        assert refused.status_code == 401


def test_a_ticket_that_is_not_for_this_opens_nothing(caller: Caller):
    good = caller.ticket()
    wrong = {
        "none": None,
        "of another key": TicketMaker().upload_ticket("n", sent().written()),
        "changed": f"{good[:-3]}AAA",
        "with other words": f"{good.rpartition('.')[0]}.{replaced(sent(), caller)}",
        "to read": caller.maker.ticket("n", order().tablet),
        "of another node": caller.maker.upload_ticket("n", sent(node="9" * 32).written()),
        "of another sender": (caller.ticket(sender="9" * 32), 0.0),
        "of another placement": (caller.ticket(generation=2), 0.0),
        "of no tablet here": (caller.ticket(tablet="9" * 32), 0.0),
        "of no form": caller.maker.upload_ticket("n", "e30"),
        "empty": "",
    }
    for what, each in wrong.items():
        ticket = each[0] if isinstance(each, tuple) else each
        assert caller.begin(ticket).status_code == 403, what
    other = caller.ticket(path=PATH.replace("1-1-0-0", "2-2-0-0"))
    assert caller.begin(other).status_code == 400  # it is good, and for another file
    assert list(caller.served.node.config.data_dirs[0].glob("uploads/*")) == []

    where = caller.begin(good).headers["Location"]
    for ticket in (None, other, "x"):
        assert caller.patch(where, ticket, 0, CONTENT[:100]).status_code == 403
        assert caller.call("HEAD", where, ticket).status_code == 403
        assert caller.call("DELETE", where, ticket).status_code == 403
    assert caller.patch(where, good, 0, CONTENT[:100], Tsferry_Sender="9" * 32).status_code == 403
    assert caller.patch(f"{FILES}/{'1' * 32}", good, 0, CONTENT[:100]).status_code == 403
    assert caller.call("HEAD", where, good).headers["Upload-Offset"] == "0"


def replaced(file: SentFile, caller: Caller) -> str:
    """What a ticket says, for another task of the same file."""
    node = caller.served.node.home.start.uuid
    return msgspec.structs.replace(file, node=node, task="2" * 32).written()


def test_a_ticket_that_is_used_twice_begins_one_upload(caller: Caller):
    first, again = caller.ticket(), caller.ticket(task="e" * 32)
    places = {caller.begin(each).headers["Location"] for each in (first, first, again)}
    assert len(places) == 1


def test_blocks_that_are_not_as_they_say_count_for_nothing(caller: Caller):
    ticket = caller.ticket()
    where = caller.begin(ticket).headers["Location"]
    checksum = base64.b64encode(xxh3_128(b"other")).decode()
    answer = caller.patch(where, ticket, 0, CONTENT[:9], Upload_Checksum=f"xxh3_128 {checksum}")
    assert answer.status_code == 460
    given = {"Upload_Offset": "0", "Content_Type": "application/offset+octet-stream"}
    assert caller.call("PATCH", where, ticket, body=b"x", **given).status_code == 400
    assert caller.patch(where, ticket, 0, b"x", Tus_Resumable="0.2").status_code == 412
    assert caller.call("HEAD", where, ticket).headers["Upload-Offset"] == "0"
    assert caller.begin(ticket, Upload_Length="7").status_code == 400
    assert caller.call("DELETE", where, ticket).status_code == 204
    assert caller.call("HEAD", where, ticket).status_code == 404


def test_a_body_may_be_as_long_as_a_block_and_that_of_other_calls_is_short(caller: Caller):
    def longest(method: str, path: str) -> int:
        return caller.served.gate(
            RequestHead.from_environ(
                {"REQUEST_METHOD": method, "PATH_INFO": path, "REMOTE_ADDR": "127.0.0.1"}
            )
        )

    assert longest("PATCH", f"{FILES}/{'1' * 32}") == 16 << 20
    assert longest("POST", FILES) == 1 << 16


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_upload_goes_on_with_the_ticket_that_has_opened_it_and_an_old_one_opens_none(
    caller: Caller,
):
    clock = Clock()
    keys, maker = TicketKeys(clock), TicketMaker(lasts=100, monotonic=lambda: 0.0)
    keys.take(maker.key_for("n", "b"))
    file = sent(node="7" * 32)
    made = maker.upload_ticket("n", file.written())
    assert made is not None
    ticket, lasts = made
    assert lasts == 100
    store = caller.served.node.copies

    def door() -> UploadDoor:
        return UploadDoor("7" * 32, keys, store)

    first = door()
    assert first.opens(ticket, SENDER) == file
    clock.now = 101.0
    assert first.goes_on(ticket, SENDER, file.upload) == file
    for refused in (
        lambda: first.opens(ticket, SENDER),
        lambda: door().goes_on(ticket, SENDER, file.upload),  # the next life of the node
        lambda: first.goes_on(ticket, "9" * 32, file.upload),
        lambda: first.goes_on(ticket, SENDER, "9" * 32),
    ):
        with pytest.raises(ForbiddenError):
            refused()


def test_what_a_ticket_says_comes_back_as_it_was_written():
    file = sent(path="sequence/root.Zürich/0/0/1-1-0-0.tsfile", md5=md5(b"").hexdigest())
    assert file_of_ticket(file.written()) == file
    for broken in ("", "AAA", file.written()[:-5]):
        with pytest.raises(ForbiddenError):
            file_of_ticket(broken)
