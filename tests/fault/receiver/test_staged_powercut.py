"""Uploads at storage nodes and true power cuts: what a node has answered is there afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import powercut
from tests.support.disk import heal
from tests.unit.receiver.storagenode.test_staged_uploads import (
    CONTENT,
    MD5,
    Place,
    listed,
    master,
    order,
    sent,
)

pytestmark = pytest.mark.slow


class CutPlace(Place):
    """A node on a disk whose power can be cut."""

    def __init__(self, disk: powercut.Disk) -> None:
        self.disk = disk
        super().__init__(Path(disk.path))

    def cut(self) -> None:
        self.stop()
        powercut.let_go(self.disk.path)
        self.disk.cut()
        self.start()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CutPlace]:
    heal(monkeypatch)
    with powercut.disk(tmp_path) as disk:
        made = CutPlace(disk)
        yield made
        made.stop()


def test_blocks_that_were_answered_are_there_after_a_power_cut(place: CutPlace):
    place.uploads.begin(sent())
    place.cut()
    assert place.uploads.begin(sent()).offset == 0
    for at in (0, 2000):
        place.uploads.patch(sent(), at, CONTENT[at : at + 2000])
        place.cut()
        assert place.uploads.begin(sent()).offset == at + 2000


def test_a_file_that_was_answered_to_be_whole_is_so_after_a_power_cut(place: CutPlace):
    place.send(sent())
    place.cut()
    assert place.uploads.begin(sent()).offset == len(CONTENT)
    assert place.uploads.read(sent().upload, 0, 9999) == (CONTENT, len(CONTENT), MD5)


def test_a_file_that_became_a_copy_is_one_after_a_power_cut(place: CutPlace):
    place.store.make([order()], master())
    place.send(sent())
    with place.uploads.offered(listed()) as there:
        assert there is not None
        assert place.store.replica(order().tablet).adopt(*there, listed())
    place.cut()
    assert place.left() == []
    fd, _ = place.store.replica(order().tablet).open_file(listed().physical)
    try:
        assert os.pread(fd, 9999, 0) == CONTENT
    finally:
        os.close(fd)
