"""A byte that is lost on its way into a file is found before the file counts."""

from __future__ import annotations

from typing import Any

import pytest

from common.durable import WriteFile
from common.errors import DigestError
from receiver.node import Node
from receiver.transfer import intake
from tests.support.node_world import Edge, World, path_of, results, tsfile

CONTENT = tsfile(points=2000)
PATH = path_of(1)


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where writes lose a byte of the file, as long as something is in the list."""
    real = WriteFile.write
    lost = [200]

    def write(self: WriteFile, data: bytes, at: int | None = None) -> None:
        begin = at or 0
        copy = bytearray(data)
        for each in lost:
            if begin <= each < begin + len(copy) and len(copy) > 1000:
                copy[each - begin] ^= 0xFF
        if at is None:
            real(self, copy)
        else:
            real(self, copy, at=at)

    monkeypatch.setattr(WriteFile, "write", write)
    return lost


def test_of_an_upload(node: Node, world: World, losing: list[int]) -> None:
    edge = Edge(node)
    with pytest.raises(DigestError, match="is read back with"):
        edge.upload(None, PATH, CONTENT)
    assert world.loaded() == {}
    losing.clear()
    edge.upload(None, PATH, CONTENT)
    assert list(world.loaded().values()) == [CONTENT]


def test_of_a_batch(node: Node, world: World, losing: list[int]) -> None:
    edge = Edge(node)
    task = edge.start()
    (result,) = edge.batch(task, {PATH: CONTENT})
    assert result.problem is not None
    assert "is read back with" in result.problem.detail
    losing.clear()
    (result,) = edge.batch(task, {PATH: CONTENT})
    assert result.problem is None
    edge.end(task, {PATH: CONTENT})
    assert results(edge.outcome(task)) == {PATH: "loaded"}


def test_larger_files_are_left_to_the_verification(
    node: Node, world: World, losing: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_READ_BACK_BYTES", len(CONTENT) - 1)
    Edge(node).upload(None, PATH, CONTENT)
    assert list(world.loaded().values()) != [CONTENT]


def test_files_of_a_batch_are_on_their_way_before_the_first_is_waited_for(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = Edge(node)
    task = edge.start()
    seen: list[str] = []
    for name in ("begin_sync", "sync"):
        real = getattr(WriteFile, name)

        def noted(self: WriteFile, name: str = name, real: Any = real) -> None:
            seen.append(name)
            real(self)

        monkeypatch.setattr(WriteFile, name, noted)
    files = {path_of(number): tsfile(points=number) for number in range(1, 4)}
    assert [each.problem for each in edge.batch(task, files)] == [None] * 3
    assert seen == ["begin_sync"] * 3 + ["sync"] * 3
