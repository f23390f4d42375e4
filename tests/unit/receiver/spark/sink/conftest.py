from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.node import Node
from tests.support.node_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


@pytest.fixture
def node(world: World) -> Iterator[Node]:
    with world.node() as node:
        yield node
