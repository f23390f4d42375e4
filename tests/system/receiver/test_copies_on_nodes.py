"""Copies on storage nodes, with real processes: they come, survive, catch up, and give back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient
from receiver.operator.views.node_views import LossRequest
from receiver.operator.views.remote_node_views import RemoteNodesPage
from receiver.storage.reading.open_stores import OpenStores
from receiver.storage.reading.stored_place import ReceiverAddress, StoredPlace
from tests.support.centre import Centre, centre
from tests.support.edge import Edge
from tests.support.node_process import NodeProcess
from tests.support.procs import wait_until
from tests.support.tiers import sample

pytestmark = pytest.mark.slow

PLACES = [
    "copies.directory_made",
    "copies.pull_written",
    "copies.pull_named",
    "copies.pull_noted",
    "copies.complete",
]
_NODES = """[nodes]
replicas = 2
before_ack = 1
timeout = "1s"
lost_after = "0s"
"""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Centre]:
    with centre(tmp_path, _NODES) as there:
        yield there


def nodes_of(there: Centre, root: Path, url: str, *names: str) -> list[NodeProcess]:
    token = there.call("token", "create", "--role", "node")["token"]
    made = [NodeProcess(root / name, there.processes, url, token) for name in names]
    for each in made:
        each.start()
    return made


def config_of(there: Centre) -> ReceiverConfig:
    return ReceiverConfig(schema_dir=there.root / "schema", data_dirs=(there.data,))


def catalogue(there: Centre) -> dict[str, bytes]:
    """Content of each loaded file, by physical name."""
    found = there.call("files", "--limit", "1000")["files"]
    return {
        each["physical"]: (Path(each["data_dir"]) / each["physical"]).read_bytes()
        for each in found
        if each["state"] == "live"
    }


def test_files_come_to_two_nodes_survive_one_and_are_made_again_elsewhere(
    there: Centre, tmp_path: Path
) -> None:
    url = there.start()
    edge = Edge(tmp_path / "edge", url)
    edge.write(1)
    assert edge.round().exit_code != 0  # no node is there to have it: busy, and not fewer
    one, two = nodes_of(there, tmp_path, url, "one", "two")
    wait_until(lambda: edge.round().exit_code == 0, "a round that is loaded")
    edge.write(2)
    wait_until(lambda: edge.round().exit_code == 0, "another round that is loaded")
    loaded = catalogue(there)
    assert len(loaded) == 2
    wait_until(lambda: one.copies() == loaded and two.copies() == loaded, "two copies of all")

    two.kill()
    edge.write(3)
    wait_until(lambda: edge.round().exit_code == 0, "a round for which one node is enough")
    loaded = catalogue(there)
    wait_until(lambda: one.copies() == loaded, "the new file at the node that is left")
    assert two.copies() != loaded
    two.start()
    wait_until(lambda: two.copies() == loaded, "the node that came back has caught up")
    rots = next(two.disk.glob("tablets/*/sequence/**/*.tsfile"))
    rots.write_bytes(rots.read_bytes()[:-1] + b"?")
    assert two.copies() != loaded
    wait_until(lambda: two.copies() == loaded, "what rots and nobody reads is made whole")

    two.kill()
    there.kill()
    url = there.start()
    (three,) = nodes_of(there, tmp_path, url, "three")
    uuid = two.uuid
    wait_until(lambda: _is_down(there, uuid), "the node that is dead is seen to be down")
    client = OperatorClient(config_of(there))
    client.tell("POST", f"/v1/nodes/{uuid}/lost", LossRequest(confirm=True))
    wait_until(lambda: three.copies() == loaded, "all is made again elsewhere")

    physical, content = next(iter(loaded.items()))
    (there.data / physical).unlink()
    reader = there.call("token", "create", "--role", "reader")["token"]
    stores = OpenStores()
    stores.give_token(url, reader)
    entry = next(
        each
        for each in there.call("files", "--limit", "9")["files"]
        if each["physical"] == physical
    )
    place = StoredPlace(
        None, physical, len(content), entry["md5"], "", ReceiverAddress(url), physical
    )
    with stores.file(place) as file:
        assert file.read(0, len(content)) == content
    stores.close()
    assert not (there.data / physical).exists()  # a node gave it, and not the receiver

    back = there.call("copies", "back")
    assert (back["files"], back["failed"]) == (1, [])
    assert catalogue(there) == loaded

    (there.data / physical).write_bytes(content[:-1] + b"?")
    report = there.call("fsck", "--repair")
    assert [(each["kind"], each["repaired"]) for each in report["found"]] == [("structure", True)]
    assert catalogue(there) == loaded


def _is_down(there: Centre, uuid: str) -> bool:
    found = OperatorClient(config_of(there)).ask("GET", "/v1/nodes/remote", RemoteNodesPage)
    return any(each.uuid == uuid and each.state == "down" for each in found.nodes)


@pytest.mark.parametrize("place", sample(PLACES, 1))
def test_a_node_that_is_killed_while_it_pulls_goes_on_in_its_next_life(
    there: Centre, tmp_path: Path, place: str
) -> None:
    url = there.start()
    (one,) = nodes_of(there, tmp_path, url, "one")
    token = there.call("token", "create", "--role", "node")["token"]
    two = NodeProcess(tmp_path / "two", there.processes, url, token)
    two.start(env={"TSFERRY_CRASH_AT": place})
    edge = Edge(tmp_path / "edge", url)
    for number in range(3):
        edge.write(number)
    wait_until(lambda: edge.round().exit_code == 0, "a round that is loaded")
    loaded = catalogue(there)
    assert two.server is not None
    assert two.server.wait() == -9
    two.start()
    wait_until(lambda: one.copies() == loaded and two.copies() == loaded, "two copies of all")
