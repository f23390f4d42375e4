"""Two receivers on the same keys of etcd: the second takes over, and nodes and edges find it."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from receiver.cli.commands import cli
from receiver.follower.followed_receiver import FollowedReceiver
from receiver.spark.remote_catalogue import RemoteCatalogue
from receiver.storage.reading.stored_place import ReceiverAddress
from tests.support.centre import COMMAND, Centre
from tests.support.edge import Edge
from tests.support.etcd import Etcd, Settings
from tests.support.node_process import NodeProcess
from tests.support.procs import Children, children, wait_until
from tests.system.sender.test_daemon import daemon

pytestmark = pytest.mark.slow

_NODES = """[nodes]
replicas = 1
before_ack = 1
timeout = "1s"
"""


class Master(Centre):
    """One of two."""

    def __init__(self, root: Path, processes: Children, settings: Settings) -> None:
        self.settings = settings
        super().__init__(root, processes, _NODES)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _write(self) -> None:
        super()._write()
        self.config.write_text(
            f'{self.config.read_text()}[metadata]\nbackend = "etcd"\n'
            f'[metadata.etcd]\nendpoints = ["{self.settings.endpoints[0]}"]\n'
            f'prefix = "{self.settings.prefix}"\nlease = "2s"\ntimeout = "1s"\n'
            f'url = "{self.url}"\n'
        )

    def refusals(self, token: str) -> list[str]:
        """What it says to a reader, an operator and a person, none of whom it may answer."""
        said = []
        for path in ("/sync/v1/catalogue", "/v1/files", "/v1/nodes", "/ui/"):
            request = Request(self.url + path, headers={"Authorization": f"Bearer {token}"})
            with pytest.raises(HTTPError) as refused:
                urlopen(request)  # of this machine
            with refused.value as answer:
                assert answer.status in (421, 503), path
                said.append(answer.read().decode())
        return said

    def stand_by(self) -> None:
        command = [COMMAND, "--config", str(self.config), "serve", "--standby"]
        self.ready = self.root / "ready"
        self.server = self.processes.start([*command, "--ready-file", str(self.ready)], forked=True)


@pytest.fixture
def masters(tmp_path: Path, own_etcd: Etcd) -> Iterator[tuple[Master, Master]]:
    with children(tmp_path) as processes:
        settings = own_etcd.settings()
        yield (
            Master(tmp_path / "first", processes, settings),
            Master(tmp_path / "second", processes, settings),
        )


def test_a_second_master_takes_the_place_of_a_paused_one_and_nodes_find_it(
    masters: tuple[Master, Master], tmp_path: Path
) -> None:
    first, second = masters
    first.start()
    token = first.call("token", "create", "--role", "node")["token"]
    node = NodeProcess(tmp_path / "node", first.processes, first.url, token)
    text = node.config.read_text()
    node.config.write_text(text.replace(f'"{first.url}"', f'"{first.url}", "{second.url}"'))
    node.start()
    second.stand_by()
    edge = Edge(tmp_path / "edge", first.url)
    edge.write(1)
    wait_until(lambda: edge.round().exit_code == 0, "a round that is loaded")
    assert second.server is not None
    assert second.server.running
    assert not second.ready.exists()

    operator = first.call("token", "create", "--role", "operator")["token"]
    both = f"{first.url},{second.url}"
    reads, followed = (
        RemoteCatalogue(ReceiverAddress(both), token=operator),
        FollowedReceiver(both, operator, None),
    )
    seen = reads.newest, followed.look()

    assert first.server is not None
    first.server.signal(signal.SIGSTOP)  # it believes to be the master when it wakes up
    second.server.until(second.ready.exists, "the place of the first")
    wait_until(lambda: _state(second) == "up", "the node at the second")
    (before,) = second.call("files")["files"]

    token = (first.root / "schema" / "operator.token").read_text().strip()
    first.server.signal(signal.SIGCONT)
    first.refusals(token)  # at once, before it has heard of the other one
    wait_until(lambda: all(second.url in each for each in first.refusals(token)), "where to go")
    reads.refresh()  # who names both goes to the one that leads
    assert reads.newest >= seen[0]
    assert [each.size for each in reads.files(reads.at(None))] == [before["size"]]
    assert followed.look(lsn=seen[1].lsn, ts=seen[1].ts).goes_on
    assert followed.url == second.url
    reads.close()
    followed.close()
    edge.write(2)
    assert edge.round().exit_code != 0  # the first has lost its place, whatever it believes
    edge.with_url(second.url)
    wait_until(lambda: edge.round().exit_code == 0, "a round that is loaded at the second")
    wait_until(lambda: len(node.copies()) == 2, "both files at the node")
    wait_until(lambda: _state(second) == "up", "the node that is heard")
    wait_until(lambda: node.status()["doubt"] == "", "a node that doubts nobody")
    back = second.call("copies", "back")
    assert (back["files"], back["failed"]) == (1, [])  # what lay on the first one's disk alone
    assert (second.data / before["physical"]).read_bytes() == node.copies()[before["physical"]]
    found = CliRunner().invoke(cli, ["--config", str(second.config), "fsck", "--json"]).stdout
    assert {each["kind"] for each in json.loads(found)["found"]} == {"resource"}


def test_an_edge_under_load_goes_on_at_the_second_master_when_the_first_is_killed(
    masters: tuple[Master, Master], tmp_path: Path
) -> None:
    """Whatever was staged at the first is sent again; what was told to be loaded is not."""
    first, second = masters
    first.start(env={"TSFERRY_CRASH_AT": "intake.moved:5"})  # in the midst of what comes second
    token = first.call("token", "create", "--role", "node")["token"]
    node = NodeProcess(tmp_path / "node", first.processes, first.url, token)
    text = node.config.read_text()
    node.config.write_text(text.replace(f'"{first.url}"', f'"{first.url}", "{second.url}"'))
    node.start()
    wait_until(lambda: _state(first) == "up", "the node at the first")
    second.stand_by()
    edge = Edge(tmp_path / "edge", first.url)
    edge.with_standbys(second.url)
    edge.write(0)
    child, _ = daemon(
        first.processes,
        edge,
        "daemon.period=1s",
        "daemon.watch_settle=500ms",
    )
    wait_until(lambda: len(edge.listed) == 1, "the first task")
    for number in range(1, 13):
        edge.write(number, size=1 << 18)
    assert first.server is not None
    assert first.server.wait() == -9, first.server.text()
    assert len(edge.listed) < 13
    edge.write(100)
    assert second.server is not None
    second.server.until(second.ready.exists, "the place of the first")
    wait_until(lambda: len(edge.listed) == 14, "everything")
    files = second.call("files", "--sender", edge.uuid, "--limit", "1000")["files"]
    assert {each["path"]: each["md5"] for each in files} == edge.files
    assert len(files) == 14, "loaded once each"
    copies = {hashlib.md5(each).hexdigest() for each in node.copies().values()}
    assert copies == set(edge.files.values())
    assert child.terminate() == 0
    text = child.text()
    assert "Traceback" not in text
    assert f"is spoken to at {second.url}" in text


def _state(master: Master) -> str:
    found = [each for each in master.call("nodes", "list")["nodes"] if each["kind"] == "remote"]
    return str(found[0]["state"]) if found else ""
