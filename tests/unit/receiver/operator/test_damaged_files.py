"""What a verification found bad is hidden only where nobody has it whole."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from common import crash
from common.durable import Tree
from common.errors import NoSpaceError
from receiver.load.upkeep.verdicts import Recorded, Verdict
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState
from receiver.operator.damaged_files import DamagedFiles
from tests.support.losing_master import Losing


@pytest.fixture
def losing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    losing = Losing(tmp_path, monkeypatch)
    yield losing
    losing.close()


class Judge:
    """Takes verdicts at a centre whose object store has what a test puts there."""

    def __init__(self, losing: Losing) -> None:
        self.losing = losing
        self.store: dict[str, bytes] = {}
        self.damaged = self.anew()

    def anew(self) -> DamagedFiles:
        """As after a restart."""
        losing = self.losing
        return DamagedFiles(
            losing.centre.engine, lambda: losing.trees, losing.back, lambda rows: self.pinned(rows)
        )

    @contextmanager
    def pinned(self, rows):
        for row in rows:
            (self.losing.data / row.physical).write_bytes(self.store[row.physical])
        yield

    def verdict(self, physical: str, **more) -> Verdict:
        md5 = self.losing.row(physical).md5
        return Verdict(physical, md5, "page 3: sum differs", **more)

    def told(self, physical: str):
        return self.damaged.judge([self.verdict(physical)])


@pytest.fixture
def judge(losing: Losing) -> Judge:
    return Judge(losing)


def damage(path: Path) -> bytes:
    content = path.read_bytes()
    path.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    return path.read_bytes()


def test_a_bad_file_that_a_node_has_whole_is_mended_and_stays_visible(losing, judge):
    physical, other = losing.files[:2]
    damage(losing.data / physical)
    good = Verdict(other, losing.row(other).md5)
    said = judge.damaged.judge([judge.verdict(physical), good])
    assert said == (Recorded(verified=1), 1)
    assert (losing.data / physical).read_bytes() == losing.contents[physical]
    row = losing.row(physical)
    assert (row.visible, bool(row.verified)) == (True, False)  # nobody has read it anew
    assert not (losing.data / "stray" / physical).exists()
    assert judge.told(physical) == (Recorded(), 1)  # told again, as after an answer that was lost


def test_a_missing_file_comes_back_too(losing, judge):
    physical = losing.files[0]
    (losing.data / physical).unlink()
    assert judge.told(physical).mended == 1
    assert (losing.data / physical).read_bytes() == losing.contents[physical]


def test_nobody_reads_what_is_bad_while_it_comes(losing, judge, monkeypatch):
    physical = losing.files[0]
    damage(losing.data / physical)
    seen = []
    real = losing.content

    def content(url, query):
        seen.append((losing.data / physical).exists())
        return real(url, query)

    losing.content = content
    assert judge.told(physical).mended == 1
    assert seen
    assert not any(seen)


@pytest.mark.parametrize("how", ["away", "wrong", "full"])
def test_what_nobody_gives_whole_is_hidden_and_keeps_its_bytes(losing, judge, monkeypatch, how):
    physical = losing.files[0]
    bad = damage(losing.data / physical)
    for each in losing.nodes:
        if how == "away":
            each.stop()
        losing.wrong[each.host] = bad

    def full(row):
        raise NoSpaceError("the disk is full")

    if how == "full":
        monkeypatch.setattr(losing.back, "bring", full)
    assert judge.told(physical) == (Recorded(quarantined=1), 0)
    row = losing.row(physical)
    assert (row.state, row.reason) == (FileState.QUARANTINED, "page 3: sum differs")
    assert (losing.data / physical).read_bytes() == bad
    assert judge.told(physical) == (Recorded(quarantined=1), 0)


@pytest.mark.parametrize("room", ["of its bad bytes", "none"])
def test_a_full_disk_hides_no_file_that_a_node_has_whole(losing, judge, monkeypatch, room):
    """What is bad took the room of what was to come in its place."""
    physical = losing.files[0]
    damage(losing.data / physical)
    create = Tree.create

    def full(tree: Tree, rel: str) -> object:
        if room == "none" or (losing.data / "stray" / physical).exists():
            raise NoSpaceError("the disk is full")
        return create(tree, rel)

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "create", full)
        assert judge.told(physical) == (Recorded(), 1)
    assert losing.row(physical).visible
    assert not (losing.data / "stray" / physical).exists()
    assert (losing.data / physical).exists() == (room != "none")
    assert losing.back.bring(losing.row(physical))
    assert (losing.data / physical).read_bytes() == losing.contents[physical]


def test_what_the_store_alone_has_whole_comes_from_there(losing, judge):
    physical = losing.files[0]
    for each in losing.nodes:
        each.stop()
    size = losing.row(physical).size
    losing.centre.engine.commit([records.FileUploaded(physical, 1, size, "", "")])
    bad = damage(losing.data / physical)
    judge.store[physical] = bad
    other = losing.files[1]
    assert judge.told(physical).mended == 0  # what is bad there mends nothing
    losing.centre.engine.commit([records.FileUploaded(other, 1, losing.row(other).size, "", "")])
    damage(losing.data / other)
    judge.store[other] = losing.contents[other]
    assert judge.told(other).mended == 1
    assert (losing.data / other).read_bytes() == losing.contents[other]


def test_a_file_that_was_bad_when_it_came_is_not_mended(losing, judge):
    physical = losing.files[0]
    said = judge.damaged.judge([judge.verdict(physical, as_sent=True)])
    assert said == (Recorded(quarantined=1), 0)
    other = losing.files[1]  # who tells no better: its own bytes are what was found bad
    assert judge.told(other) == (Recorded(quarantined=1), 0)


def test_one_of_two_places_that_is_bad_is_put_aside(losing, judge):
    physical = losing.files[0]
    second = losing.trees[1].path / physical
    second.parent.mkdir(parents=True)
    second.write_bytes(losing.contents[physical])
    damage(losing.data / physical)
    for each in losing.nodes:
        each.stop()
    assert judge.told(physical).mended == 1
    assert not (losing.data / physical).exists()
    assert second.read_bytes() == losing.contents[physical]


@pytest.mark.parametrize("point", ["damaged.set_aside", "copies.back_named", "damaged.hidden"])
def test_wherever_it_is_cut_nobody_reads_what_is_bad_and_it_can_be_told_again(losing, judge, point):
    physical = losing.files[0]
    damage(losing.data / physical)
    if point == "damaged.hidden":
        for each in losing.nodes:
            each.stop()

    class Cut(BaseException):
        pass

    def cut(name: str) -> None:
        if name == point:
            raise Cut

    with crash.arm(cut), suppress(Cut):
        judge.told(physical)
        raise AssertionError(point)
    here = losing.data / physical
    assert not here.exists() or here.read_bytes() == losing.contents[physical]
    judge.damaged = judge.anew()
    if point == "damaged.set_aside":
        assert judge.told(physical).mended == 1
    assert losing.row(physical).visible == (point != "damaged.hidden")
    assert os.path.exists(here) == (point != "damaged.hidden")
