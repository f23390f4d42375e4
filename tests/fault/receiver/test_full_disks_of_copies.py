"""A disk that is full, or read-only, under a node that follows, under what goes to the store, and
under what comes back from there: named, nothing lost, and it heals by itself.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import NoSpaceError, ReadOnlyError
from receiver.follower.read_node import ReadNode
from receiver.operator.stored.storage import running_storage
from tests.support.followed import FollowedCentre, known, wait_for
from tests.support.node_world import Edge, World, path_of, tsfile
from tests.support.web import until
from tests.system.test_full_disks import fill, tmpfs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems"),
]


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[FollowedCentre]:
    made = FollowedCentre(tmp_path)
    yield made
    made.stop()


def room(where: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(where)], check=True)


def test_a_node_whose_disk_fills_up_stands_still_says_so_and_comes_after(
    centre: FollowedCentre, tmp_path: Path
) -> None:
    centre.commit(0)
    with tmpfs(tmp_path / "node", "size=1m") as home, centre.node(poll=0.05) as node:
        wait_for(lambda: node.follows().level_at)
        left = fill(home)
        centre.commit(*range(1, 40))
        said = wait_for(lambda: node.follows().problem)
        assert "no space" in said
        assert str(home) in said
        assert known(node.engine) <= centre.numbers  # and answers
        left.unlink()
        wait_for(lambda: known(node.engine) == centre.numbers)
        wait_for(lambda: node.follows().problem is None)
        fill(home)
        centre.restore("restored", at=centre.commits[5][0])  # the next copy has no room
        centre.commit(77)
        wait_for(lambda: "no space" in (node.follows().problem or ""))
        assert not node.follower.ready_anew
        room(home, "size=8m")
        wait_for(lambda: node.follower.ready_anew)
        node.close()
        with centre.node() as again:
            assert known(again.engine) == centre.numbers


def test_a_node_does_not_begin_where_nothing_can_be_written_and_does_when_it_can(
    centre: FollowedCentre, tmp_path: Path
) -> None:
    centre.commit(*range(30))
    with tmpfs(tmp_path / "small", "size=1m") as home:
        left = fill(home)
        with pytest.raises(NoSpaceError, match=str(home)):
            ReadNode.open(centre.config("small/node"))
        left.unlink()
        room(home, "ro")
        with pytest.raises(ReadOnlyError, match=str(home)):
            ReadNode.open(centre.config("small/node"))
        room(home, "rw")
        with centre.node("small/node") as node:
            assert known(node.engine) == centre.numbers


def stored(root: Path, **more: object) -> World:
    (root / "bucket").mkdir()
    url = (root / "bucket").as_uri()
    return World(root / "centre", storage={"url": url, "lag": 0.1, **more})


def test_the_store_is_full_or_read_only_and_the_copies_wait_for_it(tmp_path: Path) -> None:
    world = stored(tmp_path, tree=True, tree_every=0.1)
    with tmpfs(tmp_path / "bucket", "size=1m") as bucket, world.node() as node:
        edge = Edge(node)
        edge.round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).tree >= node.engine.newest_commit)
        left = fill(bucket)
        edge.round({path_of(2): tsfile(first=50)})
        assert "no space" in str(wait_for(lambda: running_storage(node.operator).problem))
        assert node.problem() is None  # and files are taken
        left.unlink()
        until(lambda: running_storage(node.operator).uploaded_files == 2)
        until(lambda: running_storage(node.operator).problem is None)
        room(bucket, "ro")
        edge.round({path_of(3): tsfile(first=90)})
        assert "ead-only" in str(wait_for(lambda: running_storage(node.operator).problem))
        room(bucket, "rw")
        until(lambda: running_storage(node.operator).uploaded_files == 3)
        until(lambda: running_storage(node.operator).tree >= node.engine.newest_commit)
        until(lambda: running_storage(node.operator).problem is None)


def test_what_comes_back_finds_no_room_on_the_disk_and_comes_when_there_is(
    tmp_path: Path,
) -> None:
    world = stored(tmp_path)
    with (
        tmpfs(tmp_path / "centre" / "data", "size=1m") as data,
        tmpfs(tmp_path / "centre" / "data2", "size=200k"),  # so that the first has more room
        world.node() as node,
    ):
        Edge(node).round({path_of(1): tsfile()})
        until(lambda: running_storage(node.operator).waiting_files == 0)
        assert node.storage is not None
        (row,) = node.engine._state.files.values()
        (data / row.physical).unlink()
        left = fill(data)
        found = node.storage.disk_room.fetch([row], 10.0)
        assert found.here == []
        ((_, why),) = found.failed
        assert "no space" in why
        assert [each.name for each in (data / row.physical).parent.iterdir()] == []
        left.unlink()
        room(data, "ro")
        ((_, why),) = node.storage.disk_room.fetch([row], 10.0).failed
        assert "read-only" in why
        room(data, "rw")
        assert node.storage.disk_room.fetch([row], 10.0).here == [row.physical]
        assert (data / row.physical).read_bytes() == tsfile()
