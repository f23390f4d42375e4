"""Disks of real storage nodes that fail: read-only all at once, or one of two gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import powercut
from tests.support.centre import Centre, centre
from tests.support.edge import Edge
from tests.support.node_process import NodeProcess
from tests.support.procs import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.long]

_RULES = '[nodes]\nreplicas = 2\nbefore_ack = 1\ntimeout = "2s"\nlost_after = "0s"\n'
_SIZE = 1 << 20


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Centre]:
    with centre(tmp_path, _RULES) as there:
        yield there


def _made(there: Centre, root: Path, name: str) -> tuple[NodeProcess, NodeProcess, Edge]:
    """A node that is not started, another one that is, and an edge."""
    url = there.start()
    token = there.call("token", "create", "--role", "node")["token"]
    one, other = (NodeProcess(root / each, there.processes, url, token) for each in (name, "other"))
    other.start()
    return one, other, Edge(root / "edge", url)


def _loads(edge: Edge) -> None:
    wait_until(lambda: edge.round().exit_code == 0, "a round that is loaded")


def test_a_node_whose_disk_turns_read_only_says_so_and_catches_up_when_it_is_mended(
    there: Centre, tmp_path: Path
) -> None:
    sick, other, edge = _made(there, tmp_path, "sick")
    with powercut.disk(tmp_path, megabytes=64) as disk:
        sick.config.write_text(sick.config.read_text().replace(str(sick.disk), str(disk.path)))
        (disk.path / "lost+found").rmdir()
        sick.disk = disk.path
        sick.start()
        edge.write(1, size=_SIZE)
        _loads(edge)
        wait_until(lambda: len(sick.copies()) == len(other.copies()) == 1, "two copies")
        disk.remount(read_only=True)
        edge.write(2, size=_SIZE)
        _loads(edge)  # one node is enough
        wait_until(lambda: len(other.copies()) == 2, "the copy at the other")
        [why] = wait_until(lambda: sick.status()["troubles"], "the word of the sick one")
        assert "read-only" in why
        assert there.call("nodes", "show", sick.uuid)["state"] == "up"
        assert there.call("copies", "status")["whole"] == 0
        assert len(sick.copies()) == 1
        disk.remount(read_only=False)
        wait_until(lambda: sick.copies() == other.copies(), "both files at both")
        wait_until(lambda: not sick.status()["troubles"], "no word of it any more")
        assert sick.server is not None
        assert "Traceback" not in sick.server.text()
        sick.kill()


def test_a_node_starts_with_a_disk_that_is_read_only_and_has_it_again_after_another_start(
    there: Centre, tmp_path: Path
) -> None:
    sick, other, edge = _made(there, tmp_path, "sick")
    with powercut.disk(tmp_path, megabytes=64) as disk:
        first = sick.disk
        text = sick.config.read_text()
        sick.config.write_text(text.replace(str(first), str(disk.path)))
        (disk.path / "lost+found").rmdir()
        sick.disk = disk.path
        sick.start()
        edge.write(1, size=_SIZE)
        _loads(edge)
        wait_until(lambda: len(sick.copies()) == len(other.copies()) == 1, "two copies")
        sick.kill()
        disk.remount(read_only=True)
        both = text.replace(f'["{first}"]', f'["{disk.path}", "{first}"]')
        sick.config.write_text(both)
        sick.start()
        [away, there_still] = sick.status()["directories"]
        assert "is read-only: mount it for writing" in away["problem"]
        assert there_still["problem"] == ""
        sick.disk = first
        wait_until(lambda: sick.copies() == other.copies(), "the copy on the disk that is left")
        wait_until(lambda: there.call("copies", "status")["whole"] == 1, "that counts")
        disk.remount(read_only=False)
        sick.kill()
        sick.start()
        assert not any(each["problem"] for each in sick.status()["directories"])
        edge.write(2, size=_SIZE)
        _loads(edge)
        wait_until(lambda: there.call("copies", "status")["whole"] == 1, "all of it counts")
        assert sick.server is not None
        assert "Traceback" not in sick.server.text()
        sick.kill()


def test_of_two_disks_of_a_node_one_goes_and_what_it_had_is_made_again_on_the_other(
    there: Centre, tmp_path: Path
) -> None:
    two, other, edge = _made(there, tmp_path, "two")
    first, second = two.disk, tmp_path / "two" / "second"
    text = two.config.read_text()
    two.config.write_text(text.replace(f'["{first}"]', f'["{first}", "{second}"]'))
    two.start()

    def on(*disks: Path) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for two.disk in disks:
            found |= two.copies()
        return found

    for number in range(1, 9):
        edge.write(number, size=_SIZE)
    _loads(edge)
    wait_until(lambda: len(other.copies()) == 8, "all at the other")
    wait_until(lambda: on(first, second) == other.copies(), "all at both")
    assert 0 < len(on(first)) < 8
    away = second.with_name("away")
    second.rename(away)
    wait_until(lambda: there.call("status")["nodes"]["partial"] == 1, "the word of it")
    assert there.call("copies", "status")["whole"] == 0
    edge.write(9, size=_SIZE)
    _loads(edge)  # by the other node, for this one counts for nothing
    wait_until(lambda: len(other.copies()) == 9, "all at the other")

    two.kill()
    two.start()
    wait_until(lambda: on(first) == other.copies(), "all on the disk that is left")
    wait_until(lambda: there.call("copies", "status")["whole"] == 1, "that counts")

    away.rename(second)  # it comes back, with what it had
    two.kill()
    two.start()
    wait_until(lambda: there.call("status")["nodes"]["partial"] == 0, "no word of it any more")
    edge.write(10, size=_SIZE)
    _loads(edge)
    wait_until(lambda: on(first, second) == other.copies(), "what is new too")
    wait_until(lambda: there.call("copies", "status")["whole"] == 1, "all of it counts")
    assert two.server is not None
    assert "Traceback" not in two.server.text()
