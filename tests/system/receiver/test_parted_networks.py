"""A network that parts master from nodes, and nodes from each other, while files are loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.config import Secret
from tests.support.centre import COMMAND, Centre, centre
from tests.support.edge import Edge
from tests.support.node_process import NodeProcess
from tests.support.parted_network import PartedNetwork, parted_network
from tests.support.procs import wait_until
from tests.support.warm import INSIDE
from tests.support.web import make_certificate

pytestmark = [pytest.mark.slow, pytest.mark.long]

NODES = ("one", "two", "three")
_CONFIG = """[nodes]
replicas = 2
before_ack = 1
timeout = "1s"
lost_after = "2s"
ca_cert = "{cert}"
[load]
keep_deleted = "0s"
[metadata]
history = "1s"
"""


class Parted(Centre):
    """A master and three nodes, each on a machine of its own."""

    def __init__(self, root: Path, there: Centre, network: PartedNetwork) -> None:
        self.network = network
        self.cert, self.key = make_certificate(root, *network.addresses.values())
        super().__init__(root / "master", there.processes, _CONFIG.format(cert=self.cert))
        self.config.write_text(self._of("master", self.config.read_text(), 8765))
        self.url = self.serve("master", self.config)
        token = self.call("token", "create", "--role", "node")["token"]
        self.nodes = [NodeProcess(root / name, there.processes, self.url, token) for name in NODES]
        for each in self.nodes:
            text = each.config.read_text().replace("[node]", f'[node]\nca_cert = "{self.cert}"')
            each.config.write_text(self._of(each.root.name, text, 0))
            self.serve(each.root.name, each.config)
        wait_until(lambda: set(self.states().values()) == {"up"}, "all nodes are heard")
        self.edge = Edge(root / "edge", self.url, transfer={"load_timeout": 3.0})
        sender = self.call("token", "create", "--sender", self.edge.uuid)["token"]
        entry = self.edge.config.receivers[0]
        entry = msgspec.structs.replace(entry, token=Secret(sender), ca_file=self.cert)
        self.edge.with_settings(receivers=(entry,))

    def _of(self, name: str, text: str, port: int) -> str:
        """A configuration for that machine."""
        listen = f'host = "{self.network.addresses[name]}"\ntls_cert = "{self.cert}"\n'
        listen += f'tls_key = "{self.key}"\nallow = ["10.98.0.0/16"]\nport = {port}'
        told, count = re.subn(r'host = "127\.0\.0\.1"\nport = \d+', listen, text)
        assert count == 1, text
        return told

    def serve(self, name: str, config: Path) -> str:
        ready = config.parent / "ready"
        inside = [*INSIDE, self.network.namespace(name)]
        command = [COMMAND, "--config", str(config), "serve", "--ready-file", str(ready)]
        serving = self.processes.start([*inside, *command], forked=True)
        serving.until(lambda: ready.exists() and ready.read_text().strip(), "listening")
        return ready.read_text().strip()

    def call(self, *arguments: str) -> Any:
        with self.network.at("master"):
            return super().call(*arguments)

    def round(self) -> int:
        with self.network.at("master"):
            return self.edge.round().exit_code

    def states(self) -> dict[str, str]:
        """State of each node, by the name of its machine."""
        page = self.call("nodes", "list")["nodes"]
        known = {each["uuid"]: each.get("state", "") for each in page}
        return {each.root.name: known.get(each.uuid, "") for each in self.nodes}

    def loaded(self) -> dict[str, bytes]:
        """Content of each file that readers see, by physical name."""
        found = self.call("files", "--limit", "1000")["files"]
        return {
            each["physical"]: (Path(each["data_dir"]) / each["physical"]).read_bytes()
            for each in found
            if each["state"] == "live"
        }

    def copies(self) -> dict[str, list[str]]:
        """On which machines each file lies whole, by its content at the master."""
        loaded = self.loaded()
        held = {each.root.name: each.copies() for each in self.nodes}
        return {
            name: [node for node, files in held.items() if files.get(name) == content]
            for name, content in loaded.items()
        }

    def is_settled(self) -> bool:
        """Each file lies at two nodes, all are heard, and all of it is known."""
        status = self.call("copies", "status")
        return (
            set(self.states().values()) == {"up"}
            and all(len(each) == 2 for each in self.copies().values())
            and sum(len(each.copies()) for each in self.nodes) == 2 * len(self.loaded())
            and status["whole"] == status["tablets"] == status["placed"]
            and not status["strange"]
            and status["busy"] is None
        )


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Parted]:
    with parted_network("master", *NODES) as network, centre(tmp_path / "unused") as plain:
        yield Parted(tmp_path, plain, network)


def test_nothing_told_is_lost_and_nothing_goes_while_a_network_is_parted(there: Parted) -> None:
    edge, network = there.edge, there.network
    acknowledged = []
    for number in (1, 2):
        acknowledged.append(edge.write(number))
    wait_until(lambda: there.round() == 0, "a round that is loaded")
    wait_until(there.is_settled, "two copies of each")
    (first, *_) = there.copies().values()
    away, left = first
    (third,) = set(NODES) - set(first)

    # The master does not hear one node, and what takes its place not the one that is left.
    network.part("master", away)
    network.part(left, third)
    acknowledged.append(edge.write(3))
    assert there.round() == 0
    wait_until(lambda: there.states()[away] == "down", "the silent node is down")
    assert all(left in each for each in there.copies().values())
    wait_until(
        lambda: all({left, third} <= set(each) for each in there.copies().values()),
        "all is made again at the third node, from the master",
    )
    assert len(next(node for node in there.nodes if node.root.name == away).copies()) == 2

    # It hears nobody: nothing is told to be loaded.
    network.part("master", left)
    network.part("master", third)
    edge.write(4)
    assert there.round() != 0
    wait_until(lambda: set(there.states().values()) == {"down"}, "the master hears no node")
    assert all(len(each) >= 2 for each in there.copies().values() if each)
    before = {each.root.name: each.copies() for each in there.nodes}

    network.heal()
    acknowledged.append(edge.path(4))
    wait_until(lambda: there.round() == 0, "a round that is loaded")
    wait_until(there.is_settled, "all is as it was", bound=90)
    assert {each: edge.files[each] for each in acknowledged} == edge.files
    assert len(there.loaded()) == len(acknowledged) == len(edge.listed)
    kept = [each for node in there.nodes for each in node.copies()]
    assert all(name in kept for files in before.values() for name in files)
    assert there.call("fsck")["found"] == []


def test_a_network_that_parts_two_nodes_in_the_middle_of_a_pull_costs_that_pull_alone(
    there: Parted,
) -> None:
    edge, network = there.edge, there.network
    edge.write(1)
    wait_until(lambda: there.round() == 0, "a round that is loaded")
    wait_until(there.is_settled, "two copies of each")
    ([one, other],) = there.copies().values()

    def pulled() -> list[Path]:
        found = []
        for each in [each for node in there.nodes for each in node.disk.glob("**/pulling/.*")]:
            with suppress(FileNotFoundError):  # it has its name by now
                found += [each] if each.stat().st_size else []
        return found

    for number in range(2, 6):
        edge.write(number, size=48 << 20)
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(wait_until, lambda: there.round() == 0, "a round that is loaded")
        wait_until(pulled, "a pull that is under way")
        network.part(one, other)
        loading.result()
    # Each gets from the master what the other one does not give.
    wait_until(lambda: all({one, other} <= set(each) for each in there.copies().values()), "copies")
    network.heal()
    wait_until(there.is_settled, "all is as it was")
    assert len(there.loaded()) == 5
    assert not pulled()
