"""A master dies at a step of its files' life at nodes; whoever takes its place goes on from there.

Real processes: the master is killed by itself at the point, its disk loses what was not flushed, or
a stand-by on the same keys of etcd takes over with none of its directories.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import powercut
from tests.support.dying_master import DyingMaster
from tests.support.etcd import Etcd
from tests.support.procs import Children, children
from tests.support.tiers import is_long, sample

pytestmark = pytest.mark.slow

# In the order in which they are passed.
UPLOADS = ["upload.part_made", "upload.block_synced", "upload.block_logged"]
TAKEN_IN = ["intake.moved", "intake.synced", "intake.recorded", "intake.listed", "tasks.ended"]
LOADS = ["load.decided", "placing.moved", "placing.synced", "load.committed", "finish.staged"]
PLACED = ["assignment.placed", "assignment.make_call", "assignment.running"]
PROVED = ["copies.release_proved", "copies.released", "storage.evict.before", "storage.evicted"]
BACK = ["storage.fetch.named", "storage.fetched"]
DROPPED = ["assignment.drop_call"]
FORGOTTEN = ["reaper.unlinked", "reaper.forgotten"]
COMMITS = [f"mlog.commit.{step}:{at}" for step in ("before", "durable") for at in (2, 5, 8)]
POINTS = [*UPLOADS, *TAKEN_IN, *LOADS, *PLACED, *PROVED, *BACK, *DROPPED, *COMMITS, *FORGOTTEN]
CASES = [(point, way) for point in POINTS for way in ("killed", "power cut")]
QUICK = [*UPLOADS, *TAKEN_IN, *LOADS[:3], *PROVED, *BACK, *DROPPED]
CASES += [(point, "stand-by") for point in QUICK]
# What is committed and has come to no node is nowhere then: that takes two passes to be found out.
PATIENT = [(point, "stand-by") for point in POINTS if point not in QUICK]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Children]:
    with children(tmp_path) as made:
        yield made


@pytest.mark.parametrize(("point", "way"), sample(CASES, 1) + (PATIENT if is_long() else []))
def test_what_an_edge_was_told_is_loaded_once_and_the_next_master_comes_to_the_same_end(
    processes: Children,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    point: str,
    way: str,
) -> None:
    if way == "killed":
        _dies(DyingMaster(tmp_path, processes), point)
    elif way == "stand-by":
        etcd: Etcd = request.getfixturevalue("shared_etcd")
        _dies(DyingMaster(tmp_path, processes, settings=etcd.settings()), point)
    else:
        with powercut.disk(tmp_path, megabytes=64) as disk:
            _dies(DyingMaster(tmp_path, processes, disk=disk), point)
            processes.end_all()  # before the disk is taken down


def _dies(scene: DyingMaster, point: str) -> None:
    scene.arm(point)
    scene.go_on(forgets=point in FORGOTTEN)
    assert scene.died, f"{point} was not passed"
    scene.check()
    assert set(scene.told) == {each for each in scene.edge.files if "/root.b/" not in each}
