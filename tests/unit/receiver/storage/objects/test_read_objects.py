"""What is said to be in a store that tells no digests was read there, and not for ever."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from receiver.node import Node
from receiver.storage.objects.read_objects import ReadObjects
from receiver.storage.stores.directory_store import DirectoryStore
from tests.support.followed import wait_for
from tests.support.node_world import A, Edge, World, path_of, tsfile


class Objects:
    """Some objects of 100 bytes, and what is asked of them."""

    def __init__(self, root: Path) -> None:
        self.now = 0.0
        self.root = root
        self.store = DirectoryStore(root)
        self.read = ReadObjects(lambda: self.now, most=250)
        self.rows: list[tuple[Any, str]] = []
        for number in range(4):
            content = bytes([number]) * 100
            self.store.put(f"k{number}", content)
            digest = hashlib.md5(content).hexdigest()
            row = SimpleNamespace(physical=f"f{number}", size=100, md5=digest)
            self.rows.append((row, f"k{number}"))

    def ask(self, rows: Sequence[tuple[Any, str]] | None = None) -> set[str]:
        with ThreadPoolExecutor(2) as pool:
            return self.read.whole(self.store, self.rows if rows is None else rows, pool)


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Objects]:
    made = Objects(tmp_path)
    yield made
    made.store.close()


def test_bytes_decide_and_neither_their_number_nor_their_time(objects: Objects) -> None:
    (objects.root / "k0").write_bytes(b"?" * 100)
    (objects.root / "k1").unlink()
    assert objects.ask(objects.rows[:2]) == set()
    assert objects.ask(objects.rows[2:]) == {"f2", "f3"}


def test_one_question_reads_so_much_and_the_next_one_goes_on(objects: Objects) -> None:
    assert objects.ask() == {"f0", "f1"}
    assert objects.ask() == {"f0", "f1", "f2", "f3"}


def test_what_was_read_counts_for_a_day(objects: Objects) -> None:
    objects.ask(objects.rows[:1])
    (objects.root / "k0").write_bytes(b"?" * 100)
    objects.now = 86_000.0
    assert objects.ask(objects.rows[:1]) == {"f0"}
    objects.now = 86_401.0
    assert objects.ask(objects.rows[:1]) == set()


def test_an_edge_is_not_told_that_a_file_stands_whose_object_has_other_bytes(
    tmp_path: Path,
) -> None:
    (tmp_path / "bucket").mkdir()
    url = (tmp_path / "bucket").as_uri()
    world = World(tmp_path / "centre", storage={"url": url, "lag": 0.1})
    world.root.mkdir()
    with world.node() as node:
        edge = Edge(node, uuid=A)
        edge.round({path_of(1): tsfile("root.sg.d1"), path_of(2): tsfile("root.sg.d2")})
        rows = _uploaded(node)
        (rotten,) = (tmp_path / "bucket").rglob(rows[0].physical)
        content = rotten.read_bytes()
        rotten.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert node.storage is not None
        assert node.storage.stored(rows) == {rows[1].physical}


def _uploaded(node: Node) -> list[Any]:
    def table() -> bool:
        assert node.storage is not None
        node.storage.hurry()
        with node.engine.reading() as state:
            return len(state.uploaded_table.rows) == 2

    wait_for(table)
    with node.engine.reading() as state:
        return sorted(state.files.values(), key=lambda row: row.physical)
