"""Two masters on one etcd, three nodes and two edges, each on a machine of its own, in trouble.

What edges were told is judged by the bytes on all disks: nothing of it is lost, and nothing there
twice, whatever is parted, killed, asleep, or comes back as it was yesterday.
"""

from __future__ import annotations

import hashlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.config import Secret
from tests.support.centre import COMMAND, Centre
from tests.support.edge import Edge
from tests.support.node_process import NodeProcess
from tests.support.parted_network import PartedNetwork, parted_network
from tests.support.procs import Child, Children, children, wait_until
from tests.support.warm import INSIDE
from tests.support.web import make_certificate

pytestmark = [pytest.mark.slow, pytest.mark.long]

MASTERS, NODES = ("first", "second"), ("one", "two", "three")
_LEASE = 8
_CONFIG = """[nodes]
replicas = 2
before_ack = 1
evict_copies = 2
timeout = "2s"
lost_after = "4s"
ca_cert = "{cert}"
[storage]
capacity = "100KiB"
evict_above = 0.2
evict_to = 0.1
[metadata]
backend = "etcd"
[metadata.etcd]
endpoints = ["http://{etcd}:2379"]
lease = "{lease}s"
timeout = "1s"
url = "https://{own}:8765"
"""


class Master(Centre):
    """One of two."""

    def __init__(self, root: Path, processes: Children, there: World) -> None:
        self.there, self.name = there, root.name
        address = there.network.addresses
        more = _CONFIG.format(
            cert=there.cert, etcd=address["etcd"], own=address[root.name], lease=_LEASE
        )
        super().__init__(root, processes, more)
        self.config.write_text(there.of(root.name, self.config.read_text(), 8765, self.port))
        self.url = f"https://{address[root.name]}:8765"

    def serves(self, *options: str, env: dict[str, str] | None = None) -> Child:
        self.ready = self.root / "ready"
        self.ready.unlink(missing_ok=True)
        inside = [*INSIDE, self.there.network.namespace(self.name)]
        command = [COMMAND, "--config", str(self.config), "serve", *options]
        self.server = self.processes.start(
            [*inside, *command, "--ready-file", str(self.ready)], env=env, forked=True
        )
        return self.server

    def leads(self) -> None:
        assert self.server is not None
        self.server.until(self.ready.exists, f"{self.name} to lead")

    def call(self, *arguments: str) -> Any:
        with self.there.network.at(self.name):
            return super().call(*arguments)


class World:
    """All of it."""

    def __init__(self, root: Path, processes: Children, network: PartedNetwork) -> None:
        self.network = network
        self.cert, self.key = make_certificate(root, *network.addresses.values())
        url = f"http://{network.addresses['etcd']}:2379"
        self.etcd = Child(
            [
                *INSIDE, network.namespace("etcd"), "etcd", "--data-dir", str(root / "etcd"),
                "--listen-client-urls", url, "--advertise-client-urls", url,
                "--unsafe-no-fsync",
            ],
            root / "etcd.log",
        )  # fmt: skip
        self.first, self.second = (Master(root / name, processes, self) for name in MASTERS)
        self.first.serves()
        self.first.leads()
        token = self.first.call("token", "create", "--role", "node")["token"]
        both = f'"{self.first.url}", "{self.second.url}"'
        self.nodes = [
            NodeProcess(
                root / name, processes, self.first.url, token, more=f"ca_cert = '{self.cert}'\n"
            )
            for name in NODES
        ]
        for each in self.nodes:
            text = each.config.read_text().replace(f'"{self.first.url}"', both)
            each.config.write_text(self.of(each.root.name, text, 8765, 0))
            self.starts(each)
        self.edges = [self._edge(root / f"edge{number}", number) for number in (1, 2)]
        self.told: dict[str, str] = {}
        """MD5 of what each edge was told to be loaded, by its path."""

    def _edge(self, root: Path, number: int) -> Edge:
        edge = Edge(root, self.first.url, transfer={"load_timeout": 5.0})
        edge.sg = f"root.edge{number}"
        token = self.first.call("token", "create", "--sender", edge.uuid)["token"]
        entry = msgspec.structs.replace(
            edge.config.receivers[0],
            token=Secret(token),
            ca_file=self.cert,
            standby_urls=(self.second.url,),
        )
        edge.with_settings(receivers=(entry,))
        return edge

    def of(self, name: str, text: str, port: int, before: int) -> str:
        """A configuration for that machine."""
        listen = f'host = "{self.network.addresses[name]}"\ntls_cert = "{self.cert}"\n'
        listen += f'tls_key = "{self.key}"\nallow = ["10.98.0.0/16"]\nport = {port}'
        return text.replace(f'host = "127.0.0.1"\nport = {before}', listen)

    def starts(self, node: NodeProcess) -> None:
        ready = node.root / "ready"
        ready.unlink(missing_ok=True)
        inside = [*INSIDE, self.network.namespace(node.root.name)]
        command = [COMMAND, "--config", str(node.config), "serve", "--node"]
        node.server = node.processes.start(
            [*inside, *command, "--ready-file", str(ready)], forked=True
        )
        node.server.until(lambda: ready.exists() and ready.read_text().strip(), "listening")

    def rounds(self) -> list[int]:
        """A round of each edge; what it was told is held against all disks from then on."""
        codes = []
        with self.network.at("edge"):
            for edge in self.edges:
                codes.append(edge.round().exit_code)
                self.told |= {each: edge.files[each] for each in edge.listed if each in edge.files}
        return codes

    def loads(self, number: int) -> None:
        """One more file of each edge, told to be loaded."""
        for edge in self.edges:
            edge.write(number)
        wait_until(lambda: self.rounds() == [0, 0], "rounds that are loaded", bound=120)
        self.nothing_told_is_lost()

    def copies(self) -> dict[str, int]:
        """At how many nodes each content lies whole, by its MD5."""
        found: dict[str, int] = {}
        for node in self.nodes:
            for content in set(node.copies().values()):
                md5 = hashlib.md5(content).hexdigest()
                found[md5] = found.get(md5, 0) + 1
        return found

    def nothing_told_is_lost(self) -> None:
        copies = self.copies()
        for path, md5 in self.told.items():
            assert copies.get(md5), f"{path} was told to be loaded, and no node has it"

    def is_settled(self, master: Master) -> bool:
        """Each file lies at two nodes, and is there once."""
        copies = self.copies()
        return all(copies.get(each, 0) >= 2 for each in self.told.values()) and set(
            self.states(master).values()
        ) == {"up"}

    def states(self, master: Master) -> dict[str, str]:
        page = master.call("nodes", "list")["nodes"]
        known = {each["uuid"]: each.get("state", "") for each in page}
        return {each.root.name: known.get(each.uuid, "") for each in self.nodes}

    def is_there_once(self, master: Master) -> None:
        found = [
            each
            for edge in self.edges
            for each in master.call("files", "--sender", edge.uuid, "--limit", "1000")["files"]
            if each["state"] == "live"
        ]
        assert {each["path"]: each["md5"] for each in found} == self.told
        assert len(found) == len(self.told)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with (
        parted_network("etcd", *MASTERS, *NODES, "edge") as network,
        children(tmp_path) as processes,
    ):
        world = World(tmp_path, processes, network)
        try:
            yield world
        finally:
            world.etcd.kill()


def test_nothing_told_is_lost_while_masters_nodes_and_etcd_come_and_go(there: World) -> None:
    first, second, network = there.first, there.second, there.network
    second.serves("--standby")
    there.loads(1)
    wait_until(lambda: there.is_settled(first), "two copies of each", bound=120)
    yesterday = there.nodes[0].root / "yesterday"
    shutil.copytree(there.nodes[0].disk, yesterday)

    # etcd is gone for longer than a lease, while edges send: nothing is told that is not so.
    for each in MASTERS:
        network.part("etcd", each)
    for edge in there.edges:
        edge.write(2)
    assert 0 not in there.rounds()
    there.nothing_told_is_lost()
    network.heal()
    wait_until(lambda: there.rounds() == [0, 0], "rounds that are loaded", bound=120)
    there.nothing_told_is_lost()
    leading = wait_until(lambda: _settled(there), "one of them leads, two copies", bound=120)

    # Who leads sleeps past its lease, and wakes up behind the other one; a node was parted.
    other = second if leading is first else first
    if other.ready.exists():  # it led before, and says that it is to be ended
        assert other.server is not None
        other.server.kill()
        other.serves("--standby")
    assert leading.server is not None
    leading.server.signal(signal.SIGSTOP)
    network.part(other.name, "three")
    other.leads()
    there.loads(3)
    leading.server.signal(signal.SIGCONT)
    there.loads(4)
    network.heal()
    wait_until(lambda: there.is_settled(other), "two copies of each", bound=120)
    there.is_there_once(other)

    # A node comes back with yesterday's disk.
    node = there.nodes[0]
    node.kill()
    shutil.rmtree(node.disk)
    shutil.copytree(yesterday, node.disk)
    there.starts(node)
    there.loads(5)
    wait_until(lambda: there.is_settled(other), "two copies of each", bound=120)
    assert not [each for each in other.call("nodes", "list")["nodes"] if each.get("doubt")]
    there.is_there_once(other)


def _settled(there: World) -> Master | None:
    """Who leads once all is settled; either may, behind an etcd that was gone."""
    for each in (there.first, there.second):
        try:
            if each.ready.exists() and there.is_settled(each):
                return each
        except AssertionError:  # it has lost its place, and tells nobody how things stand
            continue
    return None
