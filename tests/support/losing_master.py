"""A master in one process with two storage nodes, whose disks lose what a test takes away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from common.durable import Tree
from common.errors import UnreachableError
from receiver.metadata.state.table_rows import FileRow
from receiver.placement.copies_there.copies_back import CopiesBack
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.tablet_copies.copies_wire import FilePlace
from tests.support.copy_nodes import CopyCentre

__all__ = ["Losing"]


class Losing:
    """A master with two nodes, all copied, that loses what a test takes away."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.centre = CopyCentre(root)
        self.nodes = [self.centre.add(), self.centre.add()]
        self.files = [self.centre.load(), self.centre.load(), self.centre.load(4)]
        self.centre.settle()
        self.data = self.centre.world.data
        self.contents = {each: (self.data / each).read_bytes() for each in self.files}
        self.trees = [Tree(self.data), Tree(root / "other", create=True)]
        self.wrong: dict[str, bytes] = {}
        self.asked = 0

        def get(calls: ReaderCalls, path: str, query: dict, headers: dict) -> bytes:
            return self.content(calls.url, query)

        patch.setattr(ReaderCalls, "get", get)
        self.back = CopiesBack(self.centre.engine, lambda: self.trees, self.places)

    def places(self, physical: str) -> list[FilePlace]:
        return [
            FilePlace(url=f"http://127.0.0.1/{node.host}", ticket="t", tablet=tablet)
            for node in self.nodes
            for tablet in node.store.tablets()
            if physical in node.files(tablet)
        ]

    def content(self, url: str, query: dict) -> bytes:
        self.asked += 1
        node = next(each for each in self.nodes if url.endswith(each.host))
        if not node.is_up:
            raise UnreachableError("it is away")
        if node.host in self.wrong:
            return self.wrong[node.host][: query["length"]]
        fd, _ = node.store.replica(query["tablet"]).open_file(query["path"])
        try:
            return os.pread(fd, query["length"], query["begin"])
        finally:
            os.close(fd)

    def row(self, physical: str) -> FileRow:
        with self.centre.engine.reading() as state:
            return state.files[physical]

    def close(self) -> None:
        for each in self.trees:
            each.close()
        self.centre.close()
