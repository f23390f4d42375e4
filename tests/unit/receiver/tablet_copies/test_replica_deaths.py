"""A node that dies at each step of making, pulling, letting go and dropping goes on as if not."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from common import crash
from common.digests import md5
from common.durable import Tree
from common.errors import DamagedError, DigestError, NoSpaceError, NotFoundError, Permanent
from receiver.tablet_copies.copies_wire import CopiedFile, CopyOrder, TableAttributes
from receiver.tablet_copies.copy_journal import (
    COPIES_LOG,
    JournalLine,
    JournalState,
    append_lines,
    journal_line,
    read_journal,
)
from receiver.tablet_copies.replica_directory import roomiest
from receiver.tablet_copies.replica_store import ReplicaStore
from receiver.tablet_copies.tablet_replica import TabletReplica, check_file

TABLET = "a" * 32
ORDER = CopyOrder(tablet=TABLET, generation=1, table="root.t", begin=0, end=1)
CONTENT = b"x" * 5000
NAME = "sequence/root.t/0/0/1-1-0-0.tsfile"
FILE = CopiedFile(
    physical=NAME,
    size=len(CONTENT),
    md5=md5(CONTENT).hexdigest(),
    commit=7,
    sender="b" * 32,
    path=NAME,
)


@pytest.fixture
def trees(tmp_path: Path) -> Iterator[list[Tree]]:
    found = [Tree(tmp_path / name, create=True) for name in ("one", "two")]
    yield found
    for each in found:
        each.close()


def opened(trees: list[Tree]) -> TabletReplica:
    replica = TabletReplica(TABLET, trees)
    replica.open()
    return replica


def made(trees: list[Tree]) -> TabletReplica:
    replica = opened(trees)
    replica.make(ORDER, 0)
    replica.receive(0, FILE, [CONTENT[:3000], CONTENT[3000:]])
    return replica


def on_disk(trees: list[Tree]) -> list[str]:
    return sorted(rel for tree in trees for rel, _ in tree.files())


def read(replica: TabletReplica) -> bytes:
    fd, _ = replica.open_file(NAME)
    try:
        return os.pread(fd, 1 << 20, 0)
    finally:
        os.close(fd)


def die_at_each(
    trees: list[Tree], prepare: Callable[[], TabletReplica], act: Callable[[TabletReplica], None]
) -> Iterator[tuple[str, TabletReplica]]:
    """Die at one point of `act` after the other; each time, the replica as the next life has it."""
    number = 0
    while True:
        for at, tree in enumerate(trees):  # as new, what a process has made lasting too
            tree.close()
            shutil.rmtree(tree.path)
            trees[at] = Tree(tree.path, create=True)
        replica = prepare()
        seen: list[str] = []

        def hook(name: str, seen: list[str] = seen, stop: int = number) -> None:
            seen.append(name)
            if len(seen) == stop + 1:
                raise crash.SimulatedCrash(name)

        try:
            with crash.arm(hook):
                act(replica)
        except crash.SimulatedCrash:
            yield seen[-1], opened(trees)
            number += 1
        else:
            assert number > 0
            return


def test_a_file_that_is_pulled_is_whole_or_not_there_and_comes_in_the_next_life(trees: list[Tree]):
    def prepare() -> TabletReplica:
        replica = opened(trees)
        replica.make(ORDER, 0)
        return replica

    places = set()
    for place, after in die_at_each(trees, prepare, lambda each: each.receive(0, FILE, [CONTENT])):
        places.add(place)
        assert after.generation == 1
        if after.files():
            assert read(after) == CONTENT
        after.receive(0, FILE, [CONTENT])
        assert after.files() == {NAME: FILE}
        assert read(after) == CONTENT
        assert len([each for each in on_disk(trees) if not each.endswith(COPIES_LOG)]) == 1
    assert {"copies.pull_begun", "copies.pull_written", "copies.pull_named"} <= places
    assert {"copies.pull_noted", "durable.append.written"} <= places


def test_a_file_that_has_its_name_and_no_line_is_not_fetched_again(trees: list[Tree]):
    replica = opened(trees)
    replica.make(ORDER, 0)

    def hook(name: str) -> None:
        if name == "copies.pull_named":
            raise crash.SimulatedCrash(name)

    with crash.arm(hook), pytest.raises(crash.SimulatedCrash):
        replica.receive(0, FILE, [CONTENT])
    after = opened(trees)
    assert after.files() == {}

    def nothing() -> Iterator[bytes]:
        raise AssertionError
        yield b""

    after.receive(0, FILE, nothing())
    assert read(after) == CONTENT


def test_a_replica_is_made_or_not_there(trees: list[Tree]):
    for _, after in die_at_each(trees, lambda: opened(trees), lambda each: each.make(ORDER, 0)):
        assert after.generation in (0, 1)
        after.make(ORDER, 0)
        assert after.generation == 1


def test_a_replica_that_is_dropped_is_as_it_was_or_goes_in_the_next_life(trees: list[Tree]):
    places = set()
    for place, after in die_at_each(trees, lambda: made(trees), lambda each: each.drop(1)):
        places.add(place)
        if after.generation:
            assert read(after) == CONTENT
            assert after.drop(1)
        assert on_disk(trees) == []
        assert opened(trees).generation == 0
    assert {"copies.drop_noted", "copies.drop_unlinked", "copies.drop_forgotten"} <= places


def test_a_file_that_goes_is_there_or_gone(trees: list[Tree]):
    places = set()
    for place, after in die_at_each(trees, lambda: made(trees), lambda e: e.remove(1, [NAME])):
        places.add(place)
        if after.files():
            assert read(after) == CONTENT
            after.remove(1, [NAME])
        assert after.files() == {}
        assert on_disk(trees) == [f"tablets/{TABLET}/{COPIES_LOG}"]
    assert {"copies.gone_noted", "copies.gone"} <= places


def test_a_disk_that_cannot_be_read_at_the_start_is_told_by_its_path_with_a_way_out(
    trees: list[Tree], monkeypatch: pytest.MonkeyPatch
):
    made(trees)

    def fails(tree: Tree, rel: str, *, limit: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(tree.path / rel))

    monkeypatch.setattr(Tree, "read", fails)
    home = SimpleNamespace(doubt="", seen=None)
    with pytest.raises(DamagedError, match=f"{trees[0].path}.*take it out of data_dirs"):
        ReplicaStore(trees, home)


def test_a_torn_line_of_the_journal_never_was(trees: list[Tree]):
    made(trees)
    journal = trees[0].path / "tablets" / TABLET / COPIES_LOG
    whole = journal.read_bytes()
    begin = whole.index(b"\n") + 1
    for cut in range(begin, len(whole)):
        journal.write_bytes(whole[:cut] + b"\0\0")
        after = opened(trees)
        assert after.files() == {}
        assert journal.read_bytes() == whole[:begin]
        after.receive(0, FILE, [b"never read"])  # the file is there, and is looked at
        assert after.files() == {NAME: FILE}


def test_a_damaged_line_of_the_journal_takes_nothing_along(trees: list[Tree]):
    """One bit of the first line took all files of the replica at the next start."""
    replica = made(trees)
    other = msgspec.structs.replace(FILE, physical=NAME.replace("1-1", "2-2"))
    replica.receive(0, other, [CONTENT])
    journal = trees[0].path / "tablets" / TABLET / COPIES_LOG
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) == 3
    for number, left in enumerate(({NAME, other.physical}, {other.physical}, {NAME})):
        damaged = b"?" + lines[number][1:]
        journal.write_bytes(b"".join([*lines[:number], damaged, *lines[number + 1 :]]))
        after = opened(trees)
        assert after.files().keys() == left
        assert after.is_unlisted
        assert after.why_it_stays
        assert opened(trees).files().keys() == left  # and from then on
        after = opened(trees)
        after.make(ORDER, 0)
        for each in (FILE, other):
            if each.physical not in after.files():
                assert after.take_unnamed(each)
        assert after.files() == {NAME: FILE, other.physical: other}
        assert opened(trees).files() == after.files()
        assert opened(trees).generation == ORDER.generation
        journal.write_bytes(whole)


@pytest.mark.parametrize("is_checked", [True, False])
def test_no_bit_of_a_journal_has_it_say_what_was_never_written(
    trees: list[Tree], is_checked: bool
) -> None:
    """A file of another size or rank, another generation: each was believed."""
    made(trees)
    rel = f"tablets/{TABLET}/{COPIES_LOG}"
    for line in (JournalLine(kept=NAME), JournalLine(unlisted=False), JournalLine(gone="a/b")):
        append_lines(trees[0], rel, line)
    whole = trees[0].read(rel)
    if not is_checked:  # as an earlier release wrote them, and this one goes on
        old = [b"{" + each[28:] for each in whole.splitlines(keepends=True)]
        whole = b"".join([*old, whole.splitlines(keepends=True)[1]])
    written = [msgspec.json.decode(each) for each in whole.splitlines()]
    first = 0 if is_checked else whole.rindex(b"\n", 0, -1) + 1
    assert state_of(trees[0], rel, whole).damaged == 0
    for bit in range(first * 8, len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        found = state_of(trees[0], rel, bytes(damaged))
        assert found.damaged or found.is_doubtful, bit
        for each in trees[0].read(rel).splitlines():
            line = msgspec.json.decode(each)
            assert line in written or line.get("unlisted"), bit


def state_of(tree: Tree, rel: str, content: bytes) -> JournalState:
    (tree.path / rel).write_bytes(content)
    return read_journal(tree, rel)


def test_an_earlier_release_reads_the_lines_of_this_one(trees: list[Tree]):
    made(trees)
    lines = (trees[0].path / "tablets" / TABLET / COPIES_LOG).read_bytes().splitlines()
    found = [msgspec.json.decode(each, type=JournalLine) for each in lines]  # as it does
    assert found == [JournalLine(made=ORDER), JournalLine(file=FILE)]


def came_again(trees: list[Tree]) -> Path:
    """The journal of a replica one of whose files had gone, and has come again."""
    replica = made(trees)
    replica.remove(1, [NAME])
    replica.receive(0, FILE, [CONTENT])
    return trees[0].path / "tablets" / TABLET / COPIES_LOG


def test_no_bit_of_a_line_takes_along_a_file_that_had_gone_and_came_again(trees: list[Tree]):
    """The line that it went by was gone by once more; also where the node starts twice."""
    journal = came_again(trees)
    whole = journal.read_bytes()
    begin = whole.rindex(b"\n", 0, -1) + 1
    last = whole[begin:]
    place = trees[0].path / "tablets" / TABLET / NAME
    behind = encoded(JournalLine(known=TableAttributes(version=1)))
    for after in (b"", behind):
        for at in [0, 2, 4, len(last) - 2, len(last) - 1]:  # brackets, the first word, the end
            damaged = bytearray(last)
            damaged[at] ^= 1
            journal.write_bytes(whole[:begin] + bytes(damaged) + after)
            for _ in range(3):
                replica = opened(trees)
                assert place.exists(), (at, after)
                assert replica.is_unlisted
            assert replica.take_unnamed(FILE)
            assert opened(trees).files() == {NAME: FILE}
    journal.write_bytes(whole[:begin])  # whose bytes had only not gone yet
    opened(trees)
    assert not place.exists()


def test_what_was_made_anew_is_not_dropped_by_the_order_of_before_if_its_line_is_damaged(
    trees: list[Tree],
) -> None:
    replica = made(trees)
    journal = trees[0].path / "tablets" / TABLET / COPIES_LOG
    anew = msgspec.structs.replace(ORDER, generation=2)
    lines = [JournalLine(dropped=1), JournalLine(made=anew), JournalLine(file=FILE)]
    for line in lines:
        append_lines(trees[0], f"tablets/{TABLET}/{COPIES_LOG}", line)
    assert opened(trees).generation == 2
    journal.write_bytes(journal.read_bytes().replace(encoded(lines[1]), b"?" * 40 + b"\n"))
    for _ in range(3):
        replica = opened(trees)
        assert replica.files() == {NAME: FILE}
        assert replica.is_unlisted


def test_the_end_of_the_first_line_does_not_take_the_only_file_along(trees: list[Tree]):
    made(trees)
    journal = trees[0].path / "tablets" / TABLET / COPIES_LOG
    whole = journal.read_bytes()
    place = trees[0].path / "tablets" / TABLET / NAME
    first = whole.index(b"\n")
    for content in (whole[:first] + b"\x0b" + whole[first + 1 :], b"?" + whole[1:first], b""):
        journal.write_bytes(content)
        for _ in range(2):
            replica = opened(trees)
            assert place.exists()
            assert replica.is_there == replica.is_unlisted is True
        replica.make(ORDER, 0)
        assert replica.take_unnamed(FILE)
        assert opened(trees).files() == {NAME: FILE}


def encoded(line: JournalLine) -> bytes:
    return journal_line(line)


def test_bytes_that_no_line_names_are_taken_in_if_they_are_those_of_the_file(trees: list[Tree]):
    made(trees)
    journal = trees[0].path / "tablets" / TABLET / COPIES_LOG
    first = journal.read_bytes().splitlines(keepends=True)[0]
    place = trees[0].path / "tablets" / TABLET / NAME
    for content in (CONTENT[:-1], CONTENT[:-1] + b"?", CONTENT):
        journal.write_bytes(first)
        place.write_bytes(content)
        after = opened(trees)
        assert after.take_unnamed(FILE) == (content == CONTENT)
        assert bool(after.files()) == (content == CONTENT)


def test_other_bytes_are_refused_and_nothing_is_left_of_them(trees: list[Tree]):
    replica = opened(trees)
    replica.make(ORDER, 0)
    for wrong in ([CONTENT[:-1]], [CONTENT, b"y"], [b"y" * len(CONTENT)], []):
        with pytest.raises(DigestError):
            replica.receive(0, FILE, wrong)
        assert on_disk(trees) == [f"tablets/{TABLET}/{COPIES_LOG}"]


def test_a_lost_disk_takes_what_lay_there_and_nothing_else(trees: list[Tree], tmp_path: Path):
    replica = made(trees)
    other = msgspec.structs.replace(FILE, physical=NAME.replace("1-1", "2-2"))
    replica.receive(1, other, [CONTENT])
    shutil.rmtree(tmp_path / "one" / "tablets")
    after = opened(trees)
    assert after.generation == 1
    assert after.files() == {other.physical: other}


def test_a_file_that_vanished_is_missed_at_the_start_and_when_it_is_read(trees: list[Tree]):
    replica = made(trees)
    place = trees[0].path / "tablets" / TABLET / NAME
    place.unlink()
    assert opened(trees).missing() == [NAME]
    with pytest.raises(NotFoundError):
        replica.open_file(NAME)
    assert replica.missing() == [NAME]
    assert replica.held().state == "damaged"
    replica.receive(0, FILE, [CONTENT])
    assert replica.missing() == []


def test_files_go_to_the_roomiest_directory_that_has_room(trees: list[Tree]):
    room = [10, 20]
    assert roomiest(trees, room.__getitem__, 15) == 1
    with pytest.raises(NoSpaceError, match="two"):
        roomiest(trees, room.__getitem__, 25)


@pytest.mark.parametrize(
    "name",
    [
        "sequence/root.t/0/1/1-1-0-0.tsfile",
        "sequence/root.u/0/0/1-1-0-0.tsfile",
        "../../etc/passwd",
        "sequence/root.t/0/0/../../x.tsfile",
        "",
    ],
)
def test_a_master_that_lies_about_names_writes_nothing(trees: list[Tree], name: str):
    replica = opened(trees)
    replica.make(ORDER, 0)
    with pytest.raises(Permanent):
        check_file(ORDER, msgspec.structs.replace(FILE, physical=name))
    with pytest.raises(Permanent):
        replica.receive(0, msgspec.structs.replace(FILE, physical=name), [CONTENT])
    assert on_disk(trees) == [f"tablets/{TABLET}/{COPIES_LOG}"]


def test_a_higher_generation_takes_the_place_of_a_lower_one_and_never_the_other_way(
    trees: list[Tree],
):
    replica = made(trees)
    replica.make(msgspec.structs.replace(ORDER, generation=3), 0)
    replica.make(msgspec.structs.replace(ORDER, generation=2), 0)
    assert replica.generation == opened(trees).generation == 3
    assert not replica.drop(2)
    assert replica.files() == {NAME: FILE}


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of what was flushed, in order."""
    seen: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return seen


def test_bytes_are_on_the_disk_before_they_have_a_name_and_the_name_before_the_line(
    trees: list[Tree], flushed: list[str]
):
    replica = opened(trees)
    replica.make(ORDER, 0)
    flushed.clear()
    below = f"{trees[0].path}/tablets/{TABLET}"
    at: dict[str, list[str]] = {}

    def hook(name: str) -> None:
        at[name] = list(flushed)

    with crash.arm(hook):
        replica.receive(0, FILE, [CONTENT])
    assert any(each.startswith(f"{below}/pulling/") for each in at["copies.pull_written"])
    assert f"{below}/sequence/root.t/0/0" in at["copies.pull_named"]


def test_what_an_earlier_life_has_named_is_flushed_before_its_line(
    trees: list[Tree], flushed: list[str]
):
    replica = opened(trees)
    replica.make(ORDER, 0)

    def hook(name: str) -> None:
        if name == "durable.rename.renamed":
            raise crash.SimulatedCrash(name)

    with crash.arm(hook), pytest.raises(crash.SimulatedCrash):
        replica.receive(0, FILE, [CONTENT])
    after = opened(trees)
    flushed.clear()
    after.receive(0, FILE, [])
    place = f"{trees[0].path}/tablets/{TABLET}/{NAME}"
    assert place in flushed
    assert os.path.dirname(place) in flushed
