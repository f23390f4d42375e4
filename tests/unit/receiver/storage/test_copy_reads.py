"""Files read from storage nodes: checked, and from somebody else where a node gives nothing."""

from __future__ import annotations

from typing import cast

import pytest

from common.digests import md5
from common.errors import ForbiddenError, NotFoundError, TsferryError, UnreachableError
from receiver.storage.reading.block_cache import BlockCache
from receiver.storage.reading.copy_reads import CopyReads
from receiver.storage.reading.file_tiers import FileTiers, ShutStores
from receiver.storage.reading.ranged_file import RangedFile
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.storage.reading.receiver_reads import ReceiverReads
from receiver.storage.reading.stored_place import StoredPlace
from receiver.storage.stores.object_content import ContentChangedError
from receiver.tablet_copies.copies_wire import FilePlace, FilePlaces

CONTENT = bytes(range(256)) * 20
NAME = "sequence/root.t/0/0/1-1-0-0.tsfile"


class World:
    """A receiver and its nodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = "http://centre"
        self.now = 0.0
        self.asked: list[str] = []
        self.nodes: dict[str, bytes | TsferryError] = {"http://one": CONTENT, "http://two": CONTENT}
        self.given = CONTENT
        self.ticket = "1"
        self.valid = "1"
        self.has_nodes = True

        def get(calls: ReaderCalls, path: str, query: dict, headers: dict) -> bytes:
            return self.node(calls.url, query, headers)

        monkeypatch.setattr(ReaderCalls, "get", get)
        self.reads = CopyReads(cast(ReceiverReads, self), None, monotonic=lambda: self.now)
        self.shut = ShutStores(lambda: self.now)

    def node(self, url: str, query: dict, headers: dict) -> bytes:
        self.asked.append(url)
        if headers["Tsferry-Ticket"] != self.valid:
            raise ForbiddenError("too old")
        found = self.nodes[url]
        if isinstance(found, TsferryError):
            raise found
        return found[query["begin"] : query["begin"] + query["length"]]

    # of the receiver

    def where(self, physical: str) -> FilePlaces:
        self.asked.append("where")
        places = [FilePlace(url=url, ticket=self.ticket, tablet="a" * 32) for url in self.nodes]
        return FilePlaces(places=places if self.has_nodes else [], nodes=self.has_nodes)

    def read(self, physical: str, begin: int, length: int) -> bytes:
        self.asked.append("receiver")
        return self.given[begin : begin + length]

    def digests(self, physical: str) -> bytes:
        raise NotFoundError("it is not here")

    def file(self) -> RangedFile:
        place = StoredPlace(None, NAME, len(CONTENT), md5(CONTENT).hexdigest(), physical=NAME)
        receiver = cast(ReceiverReads, self)
        tiers = FileTiers(place, lambda _: pytest.fail("no store"), receiver, self.shut, self.reads)
        cache = BlockCache(64 << 20)
        return RangedFile(tiers, place, cache, told=tiers.told_digests, distrust=tiers.distrust)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_node_comes_before_the_receiver_and_is_found_once(world: World):
    for _ in range(3):
        with world.file() as file:
            assert file.read(7, 100) == CONTENT[7:107]
    assert world.asked == ["where", "http://one", "http://one", "http://one"]


def test_a_node_that_is_away_is_left_for_the_next_one_and_for_a_minute(world: World):
    world.nodes["http://one"] = UnreachableError("away")
    for _ in range(2):
        with world.file() as file:
            assert file.read(0, 10) == CONTENT[:10]
    assert world.asked == ["where", "http://one", "http://two", "http://two"]
    world.now = 61
    with world.file() as file:
        file.read(0, 10)
    assert world.asked[-2:] == ["http://one", "http://two"]


def test_a_node_that_lies_is_not_believed_and_the_next_one_is_read(world: World):
    world.nodes["http://one"] = b"\0" * len(CONTENT)
    with world.file() as file:
        assert file.read(0, len(CONTENT)) == CONTENT
    world.nodes["http://two"] = b"\1" * len(CONTENT)
    with world.file() as file:
        assert file.read(0, len(CONTENT)) == CONTENT
    assert world.asked[-1] == "receiver"


def test_a_node_that_gave_other_bytes_is_told_so_and_one_that_has_none_is_not(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    told: list[tuple[str, str, object]] = []

    def ask(calls: ReaderCalls, method: str, path: str, query: dict, headers: dict) -> None:
        told.append((method, f"{calls.url}{path}", query))
        assert headers == {"Tsferry-Ticket": "1"}
        raise NotFoundError("an earlier release")

    monkeypatch.setattr(ReaderCalls, "ask", ask)
    world.nodes = {"http://none": NotFoundError("gone"), "http://one": b"\0" * len(CONTENT)}
    with world.file() as file:
        assert file.read(0, len(CONTENT)) == CONTENT
    query = {"tablet": "a" * 32, "path": NAME}
    assert told == [("POST", "http://one/node/v1/content/doubted", query)]


def test_where_all_lie_that_is_told(world: World):
    world.nodes = dict.fromkeys(world.nodes, b"\0" * len(CONTENT))
    world.given = b"\1" * len(CONTENT)
    with world.file() as file, pytest.raises(ContentChangedError):
        file.read(0, 10)


def test_a_ticket_that_is_too_old_is_made_anew(world: World):
    with world.file() as file:
        file.read(0, 10)
    world.ticket = world.valid = "2"
    with world.file() as file:
        assert file.read(0, 10) == CONTENT[:10]
    assert "receiver" not in world.asked
    assert world.asked.count("where") == 2


def test_a_receiver_without_nodes_is_asked_for_them_once_a_minute(world: World):
    world.has_nodes = False
    for _ in range(3):
        with world.file() as file:
            assert file.read(0, 10) == CONTENT[:10]
    assert world.asked == ["where", "receiver", "receiver", "receiver"]
    world.now = 61
    with world.file() as file:
        file.read(0, 10)
    assert world.asked[-2:] == ["where", "receiver"]
