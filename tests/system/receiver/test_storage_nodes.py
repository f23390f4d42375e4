"""A master and storage nodes as processes: killed, copied, started anew, and told apart."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from common.errors import TsferryError
from receiver.config import ReceiverConfig
from receiver.metadata.engine import Engine
from receiver.operator.client import OperatorClient
from receiver.operator.edges.tokens import make_token
from receiver.operator.views.remote_node_views import RemoteNodesPage, RemoteNodeView
from receiver.storagenode.node_status import NODE_STATUS, NodeStatus
from tests.support.ports import free_port
from tests.support.procs import Child, Children, children, wait_until

COMMAND = Path(sys.executable).parent / "tsferry-receiver"
pytestmark = pytest.mark.slow


class Program:
    """A program of ours with a directory and a configuration; the same one however often begun."""

    def __init__(self, root: Path, processes: Children, more: str) -> None:
        self.root = root
        self.processes = processes
        self.more = more
        self.child: Child | None = None
        root.mkdir()
        self.file = root / "config.toml"
        self.port = free_port()
        self.write()

    def write(self) -> None:
        self.file.write_text(
            f'schema_dir = "{self.root}/schema"\ndata_dirs = ["{self.root}/data"]\n'
            f"[listen]\nport = {self.port}\n{self.more}"
        )
        self.file.chmod(0o600)

    @property
    def config(self) -> ReceiverConfig:
        return ReceiverConfig(schema_dir=self.root / "schema", data_dirs=(self.root / "data",))

    def begin(self) -> str:
        """Start it; returns where it listens, which is where it did before."""
        ready = self.root / "url"
        ready.unlink(missing_ok=True)
        arguments = [str(COMMAND), "--config", str(self.file), "serve"]
        self.child = self.processes.start([*arguments, "--ready-file", str(ready)], forked=True)
        self.child.until(lambda: ready.exists() and ready.read_text(), "listening")
        return ready.read_text().strip()

    def kill(self) -> None:
        assert self.child is not None
        self.child.kill()

    def status(self) -> NodeStatus:
        """Of a node."""
        return OperatorClient(self.config).ask("GET", NODE_STATUS, NodeStatus)


class Cluster:
    def __init__(self, root: Path, processes: Children) -> None:
        self.root = root
        self.processes = processes
        self.master = Program(root / "master", processes, '[nodes]\ntimeout = "1s"\n')
        with Engine.open(self.master.config.schema_dir) as engine:
            self.token = make_token(engine, "node").token
        self.url = self.master.begin()

    def node(self, name: str) -> Program:
        made = Program(
            self.root / name,
            self.processes,
            f'[node]\nmaster = ["http://127.0.0.1:1", "{self.url}"]\nname = "{name}"\n'
            f'token = "{self.token}"\nheartbeat = "0.2s"\n',
        )
        made.begin()
        return made

    def seen(self) -> dict[str, RemoteNodeView]:
        """What the master tells, by name; nothing while it does not run."""
        with suppress(TsferryError):
            client = OperatorClient(self.master.config)
            page = client.ask("GET", "/v1/nodes/remote", RemoteNodesPage)
            return {each.name: each for each in page.nodes}
        return {}

    def until(self, what: str, **states: str) -> dict[str, RemoteNodeView]:
        def there() -> dict[str, RemoteNodeView]:
            found = self.seen()
            stand = {name: view.state for name, view in found.items()}
            return found if all(stand.get(name) == each for name, each in states.items()) else {}

        found: dict[str, RemoteNodeView] = wait_until(there, what)
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with children(tmp_path) as processes:
        yield Cluster(tmp_path, processes)


def until(condition: Callable[[], object], what: str) -> None:
    def tried() -> object:
        with suppress(TsferryError):
            return condition()
        return None

    wait_until(tried, what)


def test_nodes_are_killed_and_come_back_and_so_does_their_master(cluster: Cluster) -> None:
    one, two = cluster.node("one"), cluster.node("two")
    before = cluster.until("both", one="up", two="up")
    assert before["one"].instance == 1
    assert [each.problem for each in before["one"].directories] == [""]

    two.kill()
    cluster.until("the one that is silent", one="up", two="down")
    two.begin()
    found = cluster.until("both again", one="up", two="up")
    assert (found["two"].uuid, found["two"].instance) == (before["two"].uuid, 2)

    cluster.master.kill()
    until(lambda: one.status().heard and one.status().heard > 0.7, "a node without a master")
    assert cluster.master.begin() == cluster.url
    found = cluster.until("both, after a restart of the master", one="up", two="up")
    assert (found["one"].instance, found["two"].instance) == (1, 2)
    until(lambda: one.status().problem is None, "a node that has its master again")


def test_a_copy_of_a_node_is_refused_and_the_node_goes_on(cluster: Cluster) -> None:
    one = cluster.node("one")
    cluster.until("the node", one="up")
    one.kill()
    shutil.copytree(one.root / "schema", cluster.root / "kept")
    one.begin()
    cluster.until("the node again", one="up")
    copy = Program(cluster.root / "copy", cluster.processes, one.more)
    shutil.copytree(cluster.root / "kept", copy.root / "schema")
    copy.begin()
    until(lambda: "is of a copy" in (copy.status().problem or ""), "a copy that is refused")
    view = cluster.until("the node", one="up")["one"]
    assert "is of a copy" in view.refused
    assert view.instance == 2
    assert one.status().problem is None
    directory = copy.status().directories[0]
    assert directory.problem == "", "a copy has a data directory of its own"


def test_a_node_does_not_take_another_engine_for_its_master(cluster: Cluster) -> None:
    one = cluster.node("one")
    cluster.until("the node", one="up")
    cluster.master.kill()
    shutil.rmtree(cluster.master.root / "schema")
    shutil.rmtree(cluster.master.root / "data")
    with Engine.open(cluster.master.config.schema_dir) as engine:
        token = make_token(engine, "node").token
    cluster.master.begin()
    one.kill()
    one.more = one.more.replace(cluster.token, token)
    one.write()
    one.begin()
    until(lambda: "is of the engine" in (one.status().problem or ""), "a refusal")
    assert cluster.seen() == {}
