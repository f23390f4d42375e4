"""Edges that send large files to storage nodes, with real processes that die in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient
from receiver.operator.views.remote_node_views import RemoteNodesPage
from tests.support.centre import Centre, centre
from tests.support.edge import Edge
from tests.support.node_process import NodeProcess
from tests.support.procs import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.long]

_NODES = """[nodes]
replicas = 2
timeout = "1s"
uploads_from = "64KiB"
"""
_LARGE = 300_000


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Centre]:
    with centre(tmp_path, _NODES) as there:
        yield there


class Cluster:
    """A centre with two nodes that have a tablet already, and an edge."""

    def __init__(self, there: Centre, root: Path) -> None:
        self.there = there
        self.url = there.start()
        token = there.call("token", "create", "--role", "node")["token"]
        self.nodes = [
            NodeProcess(root / name, there.processes, self.url, token) for name in ("one", "two")
        ]
        for each in self.nodes:
            each.start()
        self.edge = Edge(
            root / "edge", self.url, transfer={"batch_bytes": 1 << 15, "chunk_bytes": 1 << 16}
        )
        self.with_nodes(True)
        self.edge.write(1)
        wait_until(lambda: self.edge.round().exit_code == 0, "the first round")
        wait_until(lambda: all(each.copies() for each in self.nodes), "a tablet that runs")
        self.number = 1

    def with_nodes(self, wanted: bool) -> None:
        entry = msgspec.structs.replace(self.edge.config.receivers[0], nodes=wanted)
        self.edge.with_settings(receivers=(entry,))

    def write(self) -> str:
        self.number += 1
        return self.edge.write(self.number, size=_LARGE)

    def came_from_nodes(self) -> int:
        assert self.there.server is not None
        return self.there.server.text().count("a file came from a node")

    def has(self, path: str) -> bool:
        found = self.there.call("files", "--limit", "100")["files"]
        content = self.edge.content(path)
        return [
            (Path(each["data_dir"]) / each["physical"]).read_bytes()
            for each in found
            if each["path"] == path and each["state"] == "live"
        ] == [content]


@pytest.mark.parametrize("place", ["staged.whole", "upload.block_logged"])
def test_a_node_that_is_killed_while_a_file_comes_is_done_without_and_comes_after(
    there: Centre, tmp_path: Path, place: str
) -> None:
    cluster = Cluster(there, tmp_path)
    paths = [cluster.write()]
    assert cluster.edge.round().exit_code == 0
    assert cluster.came_from_nodes() == 1
    for each in cluster.nodes:
        each.kill()
        each.start(env={"TSFERRY_CRASH_AT": place})
    wait_until(lambda: _hears(cluster), "nodes that are heard again")
    paths += [cluster.write() for _ in range(2)]
    assert cluster.edge.round().exit_code == 0
    assert all(cluster.has(each) for each in paths)
    for each in cluster.nodes:
        if not each.server.running:  # type: ignore[union-attr]
            each.start()
    wait_until(lambda: all(len(each.copies()) == 4 for each in cluster.nodes), "all copies")
    wait_until(
        lambda: not any(list(each.disk.glob("uploads/*")) for each in cluster.nodes),
        "nothing is waited for that is here",
    )


def _hears(cluster: Cluster) -> bool:
    there = cluster.there
    config = ReceiverConfig(schema_dir=there.root / "schema", data_dirs=(there.data,))
    found = OperatorClient(config).ask("GET", "/v1/nodes/remote", RemoteNodesPage)
    return [(each.instance, each.state) for each in found.nodes] == [(2, "up"), (2, "up")]
