from __future__ import annotations

import pytest

from tests.support.centre import centre as serving
from tests.support.edge import Edge


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One receiver for all tests of a module that do not harm it."""
    with serving(tmp_path_factory.mktemp("shared")) as running:
        running.url = running.start()
        yield running


@pytest.fixture
def centre(tmp_path):
    """A receiver of one's own."""
    with serving(tmp_path / "dc") as made:
        yield made


_number = iter(range(1_000_000))


@pytest.fixture
def make_edge(tmp_path):
    """Edges with a storage group of their own each, so that no device has two owners."""

    def make(url: str, **settings) -> Edge:
        number = next(_number)
        made = Edge(tmp_path / f"edge{number}", url, **settings)
        made.sg = f"root.e{number}"
        return made

    return make
