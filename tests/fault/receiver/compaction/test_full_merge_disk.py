"""A file system that really is full in the middle of an output: said by name, and nothing half."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from common.errors import NoSpaceError
from receiver.compaction.making.merge_worker import _answer
from receiver.compaction.worth_merging.merge_asked import MergeAsked
from receiver.metadata.model.ranks import NOW
from receiver.superseding.asking import FileAsked
from tests.support.tsfile_bytes import build
from tests.system.test_full_disks import fill, tmpfs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems")
POINTS = 8000


def file_of(directory: Path, number: int) -> FileAsked:
    times = range(number * POINTS, (number + 1) * POINTS)
    content = build({"root.sg.d1": {"a": [(t, t * 7919**5 % 2**61) for t in times]}})
    path = directory / f"{number}.tsfile"
    path.write_bytes(content)
    return FileAsked(
        physical=path.name, path=str(path), sender="edge", size=len(content),
        md5=hashlib.md5(content).hexdigest(), series=0, points=0, start=None, end=None,
        name=(0, number, number, 0, 0), first=1, closed=1, last=NOW, loaded=number,
    )  # fmt: skip


@pytest.mark.parametrize("left", [0, 4096, 100_000, 300_000])
def test_a_full_disk_ends_a_merge_by_name_with_nothing_half_and_the_next_try_is_whole(
    tmp_path: Path, left: int
) -> None:
    """In the first output, or in a later one behind such that have their names."""
    files = tuple(file_of(tmp_path, number) for number in range(6))
    with tmpfs(tmp_path / "out", "size=2m") as out:
        asked = MergeAsked(files, (), "sg", str(out), "m", 60_000)
        filler = fill(out, leave=left)
        reply = _answer(asked)
        assert (reply.answer, reply.slug) == (None, NoSpaceError.slug)
        assert os.listdir(out) == [filler.name]
        for each in files:
            content = Path(str(each.path)).read_bytes()
            assert hashlib.md5(content).hexdigest() == each.md5
        filler.unlink()
        again = _answer(asked).answer
        assert again is not None
        assert sum(each.points for each in again.outputs) == 6 * POINTS
        assert len(again.outputs) > 1
