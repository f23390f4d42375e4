from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.node import Node
from receiver.shared_points.common_points import compare
from receiver.shared_points.compare_process import CompareProcess
from tests.support.node_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    with world.node() as node:
        yield node


@pytest.fixture(autouse=True)
def _compared_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points of loads are compared in this process: to start another one takes a second."""
    monkeypatch.setattr(CompareProcess, "ask", lambda _, asked, __: compare(asked))
