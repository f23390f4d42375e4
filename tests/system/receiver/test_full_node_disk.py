"""The disk of a real storage node fills up: told, nothing else stops, and it heals by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.centre import Centre, centre
from tests.support.edge import Edge
from tests.support.node_process import NodeProcess
from tests.support.procs import wait_until
from tests.system.test_full_disks import MIB, fill, tmpfs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems"),
]


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Centre]:
    rules = '[nodes]\nreplicas = 2\nbefore_ack = 1\ntimeout = "5s"\nlost_after = "0s"\n'
    with centre(tmp_path, rules) as there:
        yield there


def test_a_node_whose_disk_is_full_says_so_takes_no_more_and_catches_up_when_there_is_room(
    there: Centre, tmp_path: Path
) -> None:
    url = there.start()
    token = there.call("token", "create", "--role", "node")["token"]
    full, other = (
        NodeProcess(tmp_path / name, there.processes, url, token) for name in ("full", "other")
    )
    with tmpfs(full.disk, "size=8m"):
        full.start(), other.start()
        edge = Edge(tmp_path / "edge", url)
        edge.write(1, size=MIB)
        wait_until(lambda: edge.round().exit_code == 0, "a round that is loaded")
        wait_until(lambda: len(full.copies()) == len(other.copies()) == 1, "two copies of it")
        before = full.copies()
        left = fill(full.disk, leave=MIB // 2)
        edge.write(2, size=MIB)
        wait_until(lambda: edge.round().exit_code == 0, "a round for which one node is enough")
        wait_until(lambda: len(other.copies()) == 2, "the copy at the other")
        status = wait_until(lambda: _troubled(full), "the word of the full one")
        assert any("bytes are to come" in each for each in status["troubles"])
        assert status["heard"] is not None
        wait_until(lambda: there.call("nodes", "show", full.uuid)["state"] == "up", "heartbeats")
        assert full.copies() == before
        wait_until(lambda: not [*full.disk.glob("**/pulling/*")], "nothing left behind")
        left.unlink()
        wait_until(lambda: full.copies() == other.copies(), "both files at both")
        wait_until(lambda: not full.status()["troubles"], "no word of it any more")
        assert full.server is not None
        assert "Traceback" not in full.server.text()
    full.kill()


def _troubled(node: NodeProcess) -> dict | None:
    found = node.status()
    return found if found["troubles"] else None
