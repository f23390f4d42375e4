"""A master in one process with its nodes, whose disk is small: files leave it for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from common.durable import Tree
from common.errors import NotFoundError, UnreachableError
from receiver.metadata.state.table_rows import FileRow
from receiver.placement.copies_there.copies_back import CopiesBack
from receiver.placement.copies_there.copy_places import CopyPlaces
from receiver.placement.copies_there.released_files import ReleasedFiles
from receiver.placement.node_place import NodePlace, NodeSource
from receiver.placement.placeable_nodes import PlaceableNode
from receiver.storage.cache.cache_books import CacheBooks
from receiver.storage.cache.disk_cache import DiskCache
from receiver.storage.cache.evicting import Evictor
from receiver.storage.cache.file_fetching import FileFetcher
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.tablet_copies.copies_wire import CopySource, ProofAsked
from receiver.tablet_copies.held_proofs import give_proof
from tests.support.copy_nodes import CopyCentre, Machine, ident

__all__ = ["ReleasingCentre"]


class ReleasingCentre(CopyCentre):
    """Everything that may go goes when it is told to (`evict`).

    Attributes:
        contents: of all files that were loaded.
        asked: proofs that nodes were asked for, as (host, physical name).
        between: called before a node gives a proof.
    """

    def __init__(
        self, root: Path, patch: pytest.MonkeyPatch, copies: int = 2, **rules: float | bool
    ) -> None:
        self.contents: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.between: Callable[[ProofAsked], None] = lambda _: None
        self.tree: Tree | None = None
        super().__init__(root, copies, evict_copies=2, **rules)
        patch.setattr(ReaderCalls, "get", lambda calls, _, query, __: self._read(calls, query))
        patch.setattr(ReaderCalls, "ask", lambda calls, _, __, query, ___: self._told(calls, query))

    def live(self) -> None:
        super().live()
        if self.tree is not None:
            self.fetcher.close()
            self.tree.close()
        self.world.data.mkdir(parents=True, exist_ok=True)
        self.tree = Tree(self.world.data)
        self.places = CopyPlaces(
            self.engine,
            self.book,
            self.doubts,
            self.views,
            lambda node, tablet: self.reports.get(node, {}).get(tablet),
            lambda _, __: "t",
        )
        trees = [self.tree]
        self.back = CopiesBack(
            self.engine, lambda: trees, lambda name: self.places.of_file(name, perhaps=True)
        )
        self.cache = DiskCache(1 << 40)
        self.books = CacheBooks(self.engine, lambda: trees, self.cache)
        self.place = NodePlace(
            self.engine,
            self.book,
            self.doubts,
            self.views,
            self,
            lambda: trees,
            wanted=2,
            seems_here=self.is_here,
        )
        self.evictor = Evictor(
            self.engine,
            [self.place],
            lambda: trees,
            self.cache,
            self.books,
            parallel=1,
            monotonic=lambda: self.now,
        )
        self.fetcher = FileFetcher(
            self.engine,
            [NodeSource(self.engine, self.back)],
            lambda: trees,
            self.cache,
            parallel=1,
        )
        self.released = ReleasedFiles(
            self.engine,
            self.book,
            self.views,
            lambda node, tablet: tablet in self.reports.get(node, {}),
            self.is_here,
        )

    def sources(self, row: object, node: str) -> Sequence[CopySource]:
        return self.places.sources_for(row, node)  # type: ignore[arg-type]

    # -- files -------------------------------------------------------------------------------

    def load(self, partition: int = 0, group: str = "root.wind") -> str:
        physical = super().load(partition, group)
        self.contents[physical] = (self.world.data / physical).read_bytes()
        return physical

    def is_here(self, physical: str) -> bool:
        return (self.world.data / physical).exists()

    def evict(self) -> int:
        """Let everything go that may; how many files went."""
        self.now += 601.0
        self.cache.capacity = 1
        try:
            return self.evictor.run_once()
        finally:
            self.cache.capacity = 1 << 40

    def row(self, physical: str) -> FileRow:
        with self.engine.reading() as state:
            return state.files[physical]

    def said(self, physical: str) -> tuple[str, ...] | None:
        """Nodes that have proved to have a file, as the catalogue has it."""
        with self.engine.reading() as state:
            row = state.released_table.rows.get(physical)
        return None if row is None else row.nodes

    def fetched(self, physical: str) -> bytes:
        """A file's bytes, brought here."""
        with self.fetcher.pinned([self.row(physical)]):
            return (self.world.data / physical).read_bytes()

    def whole_at(self, physical: str) -> list[str]:
        """Hosts on whose disks the file is whole, whatever anybody says."""
        return [
            each.host
            for each in self.nodes
            for path in each.paths
            for found in path.glob(f"tablets/*/{physical}")
            if found.read_bytes() == self.contents[physical]
        ]

    def damage(self, node: Machine, physical: str) -> Path:
        """Other bytes on a node's disk, as many as before; where that is."""
        (found,) = node.paths[0].glob(f"tablets/*/{physical}")
        data = bytearray(found.read_bytes())
        data[len(data) // 2] ^= 1
        found.write_bytes(data)
        return found

    # -- calls -------------------------------------------------------------------------------

    def content(self, physical: str) -> bytes:
        """What the master gives to a node: from its disk, else from other nodes."""
        try:
            return super().content(physical)
        except NotFoundError:
            return self.back.relay(physical, 0, len(self.contents[physical]))

    def proof(self, node: PlaceableNode, asked: ProofAsked) -> str:
        there = self._node(node)
        self.asked.append((there.host, asked.physical))
        self.between(asked)
        return give_proof(there.store, asked, ident(there.instance)).digest

    def doubt(self, node: PlaceableNode, tablet: str, physical: str) -> None:
        self._node(node).doubted.append((tablet, physical))

    def _told(self, calls: ReaderCalls, query: dict) -> None:
        node = next(each for each in self.nodes if calls.url.endswith(f"//{each.host}"))
        node.doubted.append((query["tablet"], query["path"]))

    def _read(self, calls: ReaderCalls, query: dict) -> bytes:
        node = next(each for each in self.nodes if calls.url.endswith(f"//{each.host}"))
        if not node.is_up or node.is_silent:
            raise UnreachableError("it is away")
        fd, _ = node.store.replica(query["tablet"]).open_file(query["path"])
        try:
            return os.pread(fd, query["length"], query["begin"])
        finally:
            os.close(fd)

    def close(self) -> None:
        self.fetcher.close()
        super().close()
        if self.tree is not None:
            self.tree.close()
