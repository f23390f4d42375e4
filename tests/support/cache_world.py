"""A master, cache nodes and readers in one process, over a store that is a directory.

What travels over HTTP elsewhere goes to the nodes' applications here; heartbeats go when they are
told to, and the clock stands until it is moved.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import wire
from common.config import Secret
from common.digests import md5
from common.errors import UnreachableError
from receiver.config import LimitsConfig, NodeConfig, NodesConfig, ReceiverConfig, StorageConfig
from receiver.heartbeats.node_manager import NodeManager
from receiver.placement.copy_service import CopyService
from receiver.storage.cache.stored_files import place_of
from receiver.storage.reading.block_cache import BlockCache
from receiver.storage.reading.copy_reads import CopyReads
from receiver.storage.reading.file_tiers import FileTiers, ShutStores
from receiver.storage.reading.ranged_file import RangedFile
from receiver.storage.reading.reader_calls import CallAnswer, ReaderCalls
from receiver.storage.reading.receiver_reads import ReceiverReads
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress, StoredPlace
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storagenode.node_web.node_app import ServedNode
from receiver.tablet_copies.cached_files import CACHED_AT_NODE, cached_file_of
from receiver.tablet_copies.copies_wire import FilePlaces
from tests.support.spark_world import NORTH
from tests.support.stored_world import StoredWorld
from tests.support.tsfile_bytes import build, noise


class CacheNode:
    """A storage node that keeps what others read; its directories outlive it."""

    def __init__(self, world: CacheWorld, name: str, **node: Any) -> None:
        self.world, self.name, self.options = world, name, node
        self.url = f"http://{name}.example.com"
        self.calls = 0
        self.at_rest = threading.Condition()
        self.start()

    def start(self, **node: Any) -> None:
        """Begin, with what is given of its configuration changed."""
        self.options |= node
        root = self.world.root / self.name
        options = {"cache_dir": root / "kept", "cache_bytes": 64 << 20} | self.options
        config = ReceiverConfig(
            schema_dir=root / "schema",
            data_dirs=(root / "data",),
            limits=LimitsConfig(min_free_bytes=0),
            storage=StorageConfig(url=self.world.url),
            node=NodeConfig(
                master=("http://127.0.0.1:1",),
                token=Secret("t"),
                url=self.url,
                heartbeat=3600.0,
                **options,
            ),
        )
        self.served = ServedNode(config, lambda: None)
        self.served.node._url = self.url
        self.is_up = True

    def restart(self, **node: Any) -> None:
        self.stop()
        self.start(**node)
        self.beat()

    def stop(self) -> None:
        """End, as a server does: calls that are worked on come to their end."""
        was_up, self.is_up = self.is_up, False
        with self.at_rest:
            self.at_rest.wait_for(lambda: not self.calls, 60)
        if was_up:
            self.served.close()

    def beat(self) -> None:
        """Say to the master what there is to say, and hear of what it has made of that."""
        talk, more = self.served.node._talk, cast(float | None, 0.0)
        for _ in range(3):
            more = 0.0
            while more is not None:
                more = talk.answered(self.world.manager.heartbeat(talk.next()))
            self.world.now += 1.5

    @property
    def kept(self) -> list[Path]:
        """The blocks on its disk."""
        return sorted(each for each in (self.world.root / self.name / "kept").glob("*-*"))


class CacheWorld(StoredWorld):
    """See the module.

    Attributes:
        read_in_store: who read there, a node's or a reader's process, and how many bytes.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (root / "centre").mkdir()
        super().__init__(root / "centre")
        self.configure(f"file://{root / 'store'}")
        (root / "store").mkdir()
        self.now = 1000.0
        self.nodes: list[CacheNode] = []
        self.contents: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.read_in_store: list[tuple[DirectoryStore, int]] = []
        self.begin_anew()
        plain = DirectoryStore.read

        def read(store: DirectoryStore, key: str, offset: int, length: int) -> bytes:
            found = plain(store, key, offset, length)
            self.read_in_store.append((store, len(found)))
            return found

        monkeypatch.setattr(DirectoryStore, "read", read)
        monkeypatch.setattr(
            ReaderCalls, "ask", lambda calls, *said, **_: self._ask(calls.url, *said)
        )

    def begin_anew(self) -> None:
        """The master's process is another one: what it had heard of nodes is gone."""
        self.manager = NodeManager(self.engine, timeout=30, monotonic=lambda: self.now)
        no_disks: Any = SimpleNamespace(standing=list, trees=[])  # all lies in the store
        self.copies = CopyService(
            NodesConfig(), self.engine, self.manager, no_disks, monotonic=lambda: self.now
        )

    def fill(self, partitions: int = 6, size: int = 20_000) -> None:
        """A file in each partition, and one of 6 MB; all of them in the store only."""
        for number in range(1, partitions + 1):
            self._put(number, size + number)
        self._put(partitions + 1, 6_000_000)
        self.upload()
        self.read_in_store.clear()

    def _put(self, number: int, size: int) -> None:
        value = noise(size)
        content = build({"root.wind.d1": {"s": [(number, value)]}})
        path = f"sequence/root.wind/0/{number}/{number}-{number}-0-0.tsfile"
        physical = str(self.load(NORTH, path, content).relative_to(self.data))
        self.contents[physical] = content

    def add(self, name: str, **node: Any) -> CacheNode:
        """One more node, which the master has heard."""
        made = CacheNode(self, name, **node)
        self.nodes.append(made)
        made.beat()
        return made

    def beat(self) -> None:
        """All nodes that run speak."""
        for each in self.nodes:
            if each.is_up:
                each.beat()

    @property
    def version(self) -> int:
        with self.engine.reading() as state:
            row = state.cache_slots.row
        return 0 if row is None else row.version

    def owners(self) -> dict[str, str]:
        """Name of the node that each file is asked of."""
        names = {each.url: each.name for each in self.nodes}
        found = {each: self.copies.slots.place(each) for each in self.contents}
        return {each: names[place.url] for each, place in found.items() if place is not None}

    def close(self) -> None:
        for each in self.nodes:
            each.stop()
        self.copies.close()
        self.engine.close()

    # -- calls -------------------------------------------------------------------------------

    def _ask(
        self,
        url: str,
        method: str,
        path: str,
        query: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> CallAnswer:
        node = next((each for each in self.nodes if each.url == url), None)
        self.asked.append(url)
        with nullcontext() if node is None else node.at_rest:
            if node is None or not node.is_up:
                raise UnreachableError(f"{url} does not answer")
            node.calls += 1
        client = node.served.application.test_client()
        try:
            got = client.open(path, method=method, query_string=query, headers=headers, data=body)
        finally:
            with node.at_rest:
                node.calls -= 1
                node.at_rest.notify_all()
        if got.status_code >= 300:
            raise wire.from_problem(wire.decode(got.data, wire.Problem, "a refusal"))
        if path == CACHED_AT_NODE and query["length"]:
            self._must_be_right(headers, query, got.data)
        return CallAnswer(got.status_code, got.headers, got.data)

    def _must_be_right(
        self, headers: Mapping[str, str] | None, query: Mapping[str, Any], given: bytes
    ) -> None:
        """No node gives other bytes, though a reader would see it."""
        file = cached_file_of((headers or {})["Tsferry-Ticket"].rpartition(".")[2])
        [content] = [each for each in self.contents.values() if md5(each).hexdigest() == file.md5]
        assert given == content[query["begin"] :][: len(given)] != b""

    # of the receiver, as `ReceiverReads`

    def where(self, physical: str) -> FilePlaces:
        nodes, cache = bool(self.copies.nodes()), self.copies.slots.place(physical)
        return FilePlaces(places=[], nodes=nodes, cache=cache)

    def place(self, physical: str) -> StoredPlace:
        with self.engine.reading() as state:
            there, row = state.uploaded_table.rows[physical], state.files[physical]
        receiver = ReceiverAddress("http://centre")
        return place_of(StoreAddress(self.url), self.engine.uuid, there, row.md5, receiver)


class CacheReader:
    """A process that reads, such as a worker of Spark."""

    def __init__(self, world: CacheWorld) -> None:
        self.world = world
        receiver = cast(ReceiverReads, world)
        self.copies = CopyReads(receiver, None, monotonic=lambda: world.now)
        self.shut = ShutStores(lambda: world.now)
        self.memory = BlockCache(64 << 20)
        self.store = DirectoryStore(Path(world.url.removeprefix("file://")))

    def file(self, physical: str) -> RangedFile:
        place = self.world.place(physical)
        receiver = cast(ReceiverReads, self.world)
        tiers = FileTiers(place, lambda _: self.store, receiver, self.shut, self.copies)
        return RangedFile(
            tiers, place, self.memory, told=tiers.told_digests, distrust=tiers.distrust
        )

    def read(self, physical: str, begin: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file, which are not in this process's memory."""
        self.memory = BlockCache(64 << 20)
        with self.file(physical) as file:
            return file.read(begin, file.size - begin if length is None else length)
