"""What a sender remembers of looks, and what it tells by it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from common.durable import Tree
from common.names import FilePath
from sender.kept.seen_looks.deletions_sight import DeletionsSight
from sender.kept.seen_looks.looks import EdgeLook, Looks
from sender.select.entry import Entry
from sender.select.found import Mounts, Unmounted, Unreadable
from tests.support.site import Site, path, tsfile

P, Q, R = path(), path("2-1-0.tsfile"), path("3-1-0.tsfile")
LATE = FilePath.parse("unsequence/root.a/0/0/3-1-0.tsfile")
LINE = b"DELETION,root.a.d1.s1,9223372036854775807,%d,%d\n"


class Watched:
    """A site, and the looks at it; every look is read back from the disk."""

    def __init__(self, root: Path, dirs: int = 1) -> None:
        self.site = Site(root, dirs)
        self.tree = Tree(self.site.schema_dir)
        self.number = 0
        self.entries: dict = {}

    def look(self, number: int | None = None, **more) -> EdgeLook:
        self.number = number or self.number + 10
        looks = Looks.open(self.tree, "centre")
        assert looks.problem is None
        scan = msgspec.structs.replace(self.site.scan(self.entries), **more.pop("scan", {}))
        taken = looks.take(self.number, scan, self.entries, read=self.read, **more)
        looks.record(taken)
        return taken

    def load(self, *paths: FilePath) -> None:
        scan = self.site.scan()
        for each in paths or scan.files:
            self.entries[each] = self.site.entry(scan.files[each])

    def mods(self, at: FilePath, *ranges: tuple[int, int]) -> None:
        where = self.site.beside(self.site.place(at), ".mods")
        with where.open("ab") as file:
            file.write(b"".join(LINE % each for each in ranges))

    def told(self, size: int, at: FilePath = P, kept: int = 0) -> None:
        looks = Looks.open(self.tree, "centre")
        looks.told({(at.text, "mods"): (size, kept)})

    def read(self, file) -> bytes:
        return (file.data_dir / file.rel).read_bytes()


@pytest.fixture
def edge(tmp_path):
    watched = Watched(tmp_path)
    yield watched
    watched.tree.close()


def test_a_file_keeps_the_first_look_that_had_it_until_it_is_loaded(edge):
    edge.site.put(P)
    assert edge.look().first(P) == 10
    edge.site.put(Q)
    look = edge.look()
    assert (look.first(P), look.first(Q)) == (10, 20)


def test_an_open_file_is_seen_before_it_is_closed(edge):
    where = edge.site.put(P, resource=False)
    edge.look()
    edge.site.beside(where, ".resource").write_bytes(b"r")
    look = edge.look()
    assert (look.first(P), look.closed(P)) == (10, 20)
    look = edge.look()
    assert (look.first(P), look.closed(P)) == (10, 20)


def test_another_file_of_the_same_name_is_seen_anew(edge):
    edge.site.put(P)
    edge.look()
    edge.site.put(P, tsfile(value=7))
    assert edge.look().first(P) == 20


def test_a_file_that_is_gone_was_last_seen_by_the_look_before(edge):
    edge.site.put(P)
    edge.load()
    edge.look()
    edge.look()
    edge.site.remove(P)
    assert edge.look().last(P) == 20


def test_looks_that_go_by_while_an_end_is_held_did_not_have_the_file(edge):
    edge.site.put(P)
    edge.load()
    edge.look()
    edge.site.remove(P)
    edge.look()
    away = (Unreadable(edge.site.data_dirs[0], "sequence", "gone for lunch"),)
    edge.look(scan={"unreadable": away})
    assert edge.look().last(P) == 10
    edge.site.put(P)
    edge.look()
    edge.site.remove(P)
    assert edge.look().last(P) == 50


def test_what_is_not_on_the_list_keeps_its_looks_while_it_is_out_of_sight(edge):
    where = edge.site.put(P, resource=False)
    edge.look()
    edge.mods(P, (1, 5))
    edge.look()
    edge.site.remove(P)  # as what lies behind an unmounted disk
    mods = edge.site.beside(where, ".mods").read_bytes()
    edge.site.beside(where, ".mods").unlink()
    away = (Unreadable(edge.site.data_dirs[0], "sequence", "gone for lunch"),)
    look = edge.look(scan={"unreadable": away})
    assert (look.first(P), sight(look).marks) == (10, ((len(mods), 10),))
    edge.site.put(P)
    look = edge.look()
    assert P.text in look.after.sights


def test_a_directory_that_changed_while_it_was_looked_at_was_listed_but_not_at_rest(edge):
    edge.site.put(P)
    edge.load()
    edge.look()
    edge.look(scan={"changing": {P.group: "changed during the scan"}})
    edge.mods(P, (1, 5))
    look = edge.look()
    assert look.before.last_of(P.directory) == 20
    assert sight(look, P).marks == ((len(LINE % (1, 5)), 10),)


def test_a_directory_that_only_has_files_that_are_not_listed_was_not_looked_at_either(edge):
    edge.site.put(P)
    edge.look()
    away = (Unreadable(edge.site.data_dirs[0], "sequence/root.a", "a symlink"),)
    for _ in range(2):
        edge.look(scan={"files": {}, "unreadable": away})
    edge.mods(P, (1, 5))
    look = edge.look()
    assert sight(look, P).marks == ((len(LINE % (1, 5)), 10),)


def test_a_product_in_a_partition_in_motion_is_first_seen_when_that_is_at_rest(edge):
    product = path("2-1-1.tsfile")
    for each in (P, product):
        edge.site.put(each)
    motion = {"changing": {P.group: "a compaction is under way"}}
    assert P.text in edge.look(scan=motion).after.sights
    look = edge.look()
    assert (look.first(P), look.first(product)) == (10, 20)


@pytest.mark.parametrize("seen", [True, False])
def test_a_file_that_is_sent_from_a_link_is_gone_if_its_partition_was_looked_at_whole(edge, seen):
    edge.site.put(P)
    edge.look()
    copy = edge.site.scan().files[P]
    edge.site.remove(P)
    away = () if seen else (Unreadable(edge.site.data_dirs[0], "sequence", "gone for lunch"),)
    look = edge.look(scan={"unreadable": away}, last_copies=[copy])
    assert look.last_of_copy(copy) == (10 if seen else 0)


def test_a_look_that_did_not_reach_a_directory_saw_nothing_of_it(edge):
    for each in (P, LATE):
        edge.site.put(each)
    edge.load()
    edge.look()
    away = (Unreadable(edge.site.data_dirs[0], "unsequence", "gone for lunch"),)
    edge.look(scan={"unreadable": away})
    edge.look(scan={"unreadable": away})
    edge.site.remove(P)
    edge.site.remove(LATE)
    look = edge.look()
    assert (look.last(P), look.last(LATE)) == (30, 10)


def away(edge: Watched) -> EdgeLook:
    """A look while the data directory is unmounted, and with it its list."""
    unmounted = (Unmounted(edge.site.data_dirs[0], "has no marker"),)
    entries, edge.entries = edge.entries, {}
    nothing = {"unmounted": unmounted, "files": {}, "deletions": ()}
    look = edge.look(scan=nothing)
    edge.entries = entries
    return look


def test_what_was_missing_before_its_list_was_away_was_last_seen_when_it_was(edge):
    edge.site.put(P)
    edge.load()
    edge.look()
    edge.site.remove(P)
    edge.look()
    away(edge)
    assert edge.look().last(P) == 10


def test_what_came_and_went_while_its_directory_was_away_was_seen_by_no_look_of_then(edge):
    edge.site.put(P)
    edge.site.put(Q)
    edge.load()
    edge.look()
    away(edge)
    away(edge)
    edge.site.remove(P)
    edge.mods(Q, (1, 2))
    look = edge.look()
    assert look.last(P) == 10
    assert [floor for _, floor in sight(look, Q).marks] == [10]
    edge.mods(Q, (3, 4))
    assert [floor for _, floor in sight(edge.look(), Q).marks] == [10, 40]


def test_what_a_list_that_was_made_anew_has_was_not_seen_by_the_look_of_then(edge):
    edge.site.put(P)
    edge.load()
    edge.look()
    edge.site.remove(P)
    entries, edge.entries = edge.entries, {}
    assert edge.look().knowing(entries).after.missing == {P.text: 10}


def test_a_lost_memory_sees_all_anew(edge):
    edge.site.put(P)
    edge.look()
    (edge.site.schema_dir / "centre" / "looks.state").write_bytes(b"\x00broken")
    looks = Looks.open(edge.tree, "centre")
    assert looks.problem
    assert looks.take(30, edge.site.scan(), {}).first(P) == 30


def test_without_a_memory_what_is_missing_was_not_seen_by_this_look(edge):
    edge.site.put(P)
    edge.load()
    edge.look()
    edge.site.remove(P)
    (edge.site.schema_dir / "centre" / "looks.state").unlink()
    assert edge.look().last(P) == 19
    assert edge.look().last(P) == 19


def test_without_a_memory_an_empty_directory_may_be_a_mount_that_is_away(edge):
    edge.site.put(P)
    edge.site.put(LATE)
    edge.load()
    edge.look()
    edge.site.remove(P)
    (edge.site.schema_dir / "centre" / "looks.state").unlink()
    for _ in range(2):
        look = edge.look()
        assert "looks.state" in (look.scan.why_not_whole(P.group) or "")
        assert not look.scan.is_gone(P, edge.entries[P].data_dir)
    gone, edge.entries = edge.entries, {}  # a resync
    edge.look()
    edge.entries = gone
    assert edge.look().scan.is_gone(P, gone[P].data_dir)


@pytest.mark.parametrize("left", [True, False])
def test_without_a_memory_what_lies_beneath_a_mount_that_is_away_proves_nothing(edge, left):
    """An older copy of a file, or what was written while it is away: listed, it proves no more."""
    for each in (P, Q):
        edge.site.put(each)
    edge.load()
    edge.look()
    away = dict(edge.entries)
    for each in (P, Q):
        edge.site.place(each).rename(edge.site.place(each).with_name(f"{each.name}.away"))
    edge.site.put(P if left else R)
    (edge.site.schema_dir / "centre" / "looks.state").unlink()
    for _ in range(3):
        look = edge.look()
        assert "looks.state" in (look.scan.why_not_whole(Q.group) or "")
        edge.load(P if left else R)  # as the round does
    edge.entries |= away
    for each in (P, Q):
        edge.site.place(each).with_name(f"{each.name}.away").rename(edge.site.place(each))
    assert edge.look().scan.why_not_whole(Q.group) is None
    edge.site.remove(Q)
    assert edge.look().scan.is_gone(Q, away[Q].data_dir)


def test_without_a_memory_what_a_restored_edge_lacks_is_gone(edge):
    edge.site.put(P)
    edge.load()
    edge.look()
    edge.site.remove(P)
    (edge.site.schema_dir / "centre" / "looks.state").unlink()
    assert not edge.look().scan.is_gone(P, edge.entries[P].data_dir)
    for restored in (True, False):
        assert edge.look(restored=restored).scan.is_gone(P, edge.entries[P].data_dir)


def test_without_a_memory_a_directory_that_has_a_listed_file_was_not_unmounted(edge):
    edge.site.put(P)
    edge.site.put(Q)
    edge.load()
    edge.look()
    edge.site.remove(P)
    (edge.site.schema_dir / "centre" / "looks.state").unlink()
    assert edge.look().scan.is_gone(P, edge.entries[P].data_dir)


@pytest.mark.parametrize("more", [(5, 6), None])
def test_a_deletion_file_in_two_data_directories_is_the_one_with_all_or_none(tmp_path, more):
    edge = Watched(tmp_path, dirs=2)
    for number in (0, 1):
        where = edge.site.put(P, data_dir=number)
        edge.site.beside(where, ".mods").write_bytes(LINE % (1, 2 if more else number))
    if more:
        edge.mods(P, more)
    look = edge.look()
    if more is None:
        assert P not in look.scan.files
        assert [each.reason for each in look.scan.waiting if "not the same" in each.reason]
    else:
        assert [each.data_dir for each in look.due(applies=True)] == [edge.site.data_dirs[0]]
        assert sight(look, P).size == len(LINE % (1, 2) + LINE % more)


def test_a_receiver_that_knows_no_looks_is_told_none(edge):
    edge.site.put(P)
    looks = Looks.open(edge.tree, "centre")
    look = looks.take(0, edge.site.scan(), {})
    assert (look.first(P), look.closed(P), look.last(P), look.due(applies=True)) == (0, 0, 0, [])


def test_a_last_copy_was_last_seen_when_its_source_was(edge):
    edge.site.put(P)
    edge.look()
    edge.look()
    copy = edge.site.scan().files[P]
    edge.site.remove(P)
    look = edge.look(last_copies=[copy])
    assert look.first(P) == 10
    edge.entries[P] = Entry.of(copy, "0" * 32, None)
    assert edge.look().last(P) == 20


# -- file systems -----------------------------------------------------------------------------


def mounted(edge: Watched, mount: str) -> dict[str, object]:
    directory = P.directory
    opened = frozenset({"sequence", "sequence/root.a", "sequence/root.a/0", directory})
    others = {directory: mount} if mount else {}
    return {"mounts": {edge.site.data_dirs[0]: Mounts(opened, others)}}


def test_what_is_not_on_the_file_system_that_it_was_listed_on_is_not_gone(edge):
    edge.site.put(P)
    edge.load()
    edge.look(scan=mounted(edge, "disk"))
    edge.site.remove(P)
    look = edge.look(scan=mounted(edge, ""))  # the disk is not mounted over the directory
    assert not look.scan.is_gone(P, edge.site.data_dirs[0])
    assert "file system" in (look.scan.why_not_whole(P.group) or "")
    assert [each.rel for each in look.scan.not_looked_at] == [P.directory]
    again = edge.look(scan=mounted(edge, "disk")).scan
    assert again.is_gone(P, edge.site.data_dirs[0])
    assert not again.not_looked_at


def test_a_file_that_is_as_it_was_proves_its_file_system(edge):
    for each in (P, Q):
        edge.site.put(each)
    edge.load()
    edge.look(scan=mounted(edge, "disk"))
    edge.site.remove(P)
    look = edge.look(scan=mounted(edge, "disk by another name"))
    assert look.scan.is_gone(P, edge.site.data_dirs[0])


# -- the second look --------------------------------------------------------------------------


def test_a_file_that_is_back_is_not_told_as_gone(edge):
    edge.site.put(P)
    edge.load()
    edge.look()
    edge.site.remove(P)
    look = edge.look()
    told = {P: edge.entries[P]}
    assert look.not_gone(edge.site.scan(edge.entries), told) == {}
    edge.site.put(P)
    assert list(look.not_gone(edge.site.scan(edge.entries), told)) == [P.group]


def test_a_directory_that_became_a_link_proves_nothing(edge, tmp_path):
    edge.site.put(P)
    edge.load()
    edge.look()
    edge.site.remove(P)
    look = edge.look()
    directory = edge.site.data_dirs[0] / "sequence" / "root.a"
    directory.rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", directory)
    again = look.not_gone(edge.site.scan(edge.entries), {P: edge.entries[P]})
    assert "symlink" in again[P.group]


# -- deletion files ---------------------------------------------------------------------------


def sight(look: EdgeLook, at: FilePath = P) -> DeletionsSight:
    found = look.after.deletions[at.text]["mods"]
    assert found.size
    return found


def test_records_have_the_look_before_the_one_that_saw_them_first(edge):
    edge.site.put(P)
    edge.look()
    edge.mods(P, (1, 2))
    look = edge.look()
    assert [floor for _, floor in sight(look).marks] == [10]
    edge.mods(P, (3, 4))
    marks = sight(edge.look()).marks
    assert [floor for _, floor in marks] == [10, 20]
    assert [end for end, _ in marks] == [len(LINE % (1, 2)), 2 * len(LINE % (1, 2))]


def test_records_of_a_first_look_hide_nothing_elsewhere(edge):
    edge.site.put(P)
    edge.mods(P, (1, 2))
    assert [floor for _, floor in sight(edge.look()).marks] == [0]


def test_what_is_told_is_due_no_more_until_there_is_more(edge):
    edge.site.put(P)
    edge.mods(P, (1, 2))
    assert [each.path for each in edge.look().due(applies=True)] == [P]
    edge.told(len(LINE % (1, 2)))
    assert edge.look().due(applies=True) == []
    edge.mods(P, (5, 6))
    look = edge.look()
    assert [each.path for each in look.due(applies=True)] == [P]
    assert sight(look).told == len(LINE % (1, 2))


@pytest.mark.parametrize("kept", [1, -1])  # -1: told by a version that did not note it
def test_what_was_told_as_only_kept_is_due_once_it_applies(edge, kept):
    edge.site.put(P)
    edge.mods(P, (1, 2))
    one = len(LINE % (1, 2))
    look = edge.look()
    (file,) = look.due(applies=False)
    assert (look.begin(file, applies=True), look.kept_of(file, 0, one, applies=False)) == (0, 1)
    edge.told(one, kept=kept)
    look = edge.look()
    assert look.due(applies=False) == []
    assert [each.path for each in look.due(applies=True)] == [P]
    edge.mods(P, (5, 6))
    look = edge.look()
    (file,) = look.due(applies=False)
    assert (look.begin(file, applies=False), look.begin(file, applies=True)) == (one, 0)
    both = {1: 2, -1: -1}[kept]
    assert look.kept_of(file, one, 2 * one, applies=False) == both
    assert look.kept_of(file, 0, 2 * one, applies=True) == 0
    edge.told(2 * one, kept=0)
    assert edge.look().due(applies=True) == edge.look().due(applies=False) == []


def test_a_memory_of_an_earlier_version_does_not_say_what_was_only_kept():
    assert msgspec.json.decode(b'[[1,2,3],9,"d",[[9,0]],9,"d"]', type=DeletionsSight).kept == -1


def test_of_a_forwarded_one_what_applies_below_is_due_and_what_does_not_is_not(edge):
    edge.site.put(P)
    edge.mods(P, (1, 2), (3, 4), (5, 6))
    look, one = edge.look(), len(LINE % (1, 2))
    (file,) = look.due(applies=True)

    def forwarded(*applied: bool) -> EdgeLook:
        segments = tuple((one * (n + 1), 5, each) for n, each in enumerate(applied))
        noted = msgspec.structs.replace(file, segments=segments)
        scan = msgspec.structs.replace(look.scan, deletions=[noted])
        marks = tuple((end, floor) for end, floor, _ in segments)
        seen = msgspec.structs.replace(sight(look), marks=marks, told=3 * one, kept=2)
        after = msgspec.structs.replace(look.after, deletions={P.text: {"mods": seen}})
        return msgspec.structs.replace(look, scan=scan, after=after)

    assert forwarded(True, False, False).due(applies=True) == []
    assert forwarded(True, True, False).due(applies=False) == []
    (due,) = forwarded(True, True, False).due(applies=True)
    assert forwarded(True, True, False).begin(due, applies=True) == 0
    assert forwarded(True, True, False).kept_of(due, 0, 3 * one, applies=True) == 1


def test_a_look_that_is_not_behind_the_last_one_sees_all_for_the_first_time(edge):
    """The receiver says so of numbers that cannot have been, as of a clock that was far ahead."""
    edge.site.put(P)
    edge.look(1000)
    edge.mods(P, (1, 2))
    edge.look(2000)
    edge.told(len(LINE % (1, 2)))
    look = edge.look(30)
    assert (look.first(P), look.closed(P), look.after.last) == (30, 30, 30)
    assert sight(look).marks == ((len(LINE % (1, 2)), 0),)
    assert [each.path for each in look.due(applies=True)] == [P]
    edge.load()
    assert edge.look(40).last(P) == 30


def test_a_torn_record_waits(edge):
    edge.site.put(P)
    edge.mods(P, (1, 2))
    with edge.site.beside(edge.site.place(P), ".mods").open("ab") as file:
        file.write(b"DELETION,root.a.d1")
    assert sight(edge.look()).size == len(LINE % (1, 2))


def test_a_deletion_file_that_vanished_or_shrank_is_not_withdrawn(edge):
    edge.site.put(P)
    edge.load()
    edge.mods(P, (1, 2), (3, 4))
    before = sight(edge.look())
    where = edge.site.beside(edge.site.place(P), ".mods")
    where.unlink()
    assert sight(edge.look()).marks == before.marks


def test_a_deletion_file_that_was_written_anew_is_told_behind_what_it_said(edge):
    """A database may compact it: nobody knows what of it is later than its first record."""
    edge.site.put(P)
    edge.load()
    edge.look()
    edge.mods(P, (1, 2), (3, 4))
    look = edge.look()
    edge.told(size := sight(look).size)
    where = edge.site.beside(edge.site.place(P), ".mods")
    for content in (LINE % (1, 4), LINE % (5, 6) * 3):
        where.write_bytes(content)
        look = edge.look()
        assert [each.path for each in look.due(applies=True)] == [P]
        assert (sight(look).told, sight(look).there) == (0, size)
        assert sight(look).marks == ((len(content), 10),)
    look = look.told_as({P.text: f"mods:{size + len(content)}:{'e' * 32}"})
    assert look.due(applies=True) == [
        edge.site.scan(edge.entries).deletions[0]
    ]  # it was not told yet


def test_a_deletion_file_that_vanished_or_shrank_is_named_as_far_as_it_was_told(edge):
    edge.site.put(P)
    edge.site.put(Q)
    edge.load()
    edge.mods(P, (1, 2), (3, 4))
    edge.mods(Q, (1, 2))  # of which the receiver knows nothing
    size = sight(edge.look()).size
    edge.told(size)
    where = edge.site.beside(edge.site.place(P), ".mods")
    content = where.read_bytes()
    assert edge.look().kept_deletions == []
    edge.site.beside(edge.site.place(Q), ".mods").unlink()
    words = "its deletion file %s; what it said still holds at the receiver"
    for less in (LINE % (1, 2), b""):
        where.write_bytes(less)
        for _ in range(2):
            assert edge.look().kept_deletions == [(P, words % "shrank")]
    where.unlink()
    assert edge.look().kept_deletions == [(P, words % "vanished")]
    where.write_bytes(content)
    assert edge.look().kept_deletions == []
    where.unlink()
    edge.site.remove(P)
    assert edge.look().kept_deletions == []


def test_a_move_does_not_date_deletions_anew(edge):
    edge.site.put(P)
    edge.mods(P, (1, 2))
    edge.look()
    edge.look()
    content = edge.site.place(P).read_bytes()
    mods = edge.site.beside(edge.site.place(P), ".mods")
    edge.site.remove(P)
    edge.site.put(Q, content)
    mods.rename(edge.site.beside(edge.site.place(Q), ".mods"))
    assert [floor for _, floor in sight(edge.look(), Q).marks] == [0]


@pytest.mark.parametrize(
    ("content", "closed", "floor"),
    [
        (tsfile(), True, 10),
        (tsfile(value=1), True, 20),
        (tsfile(device="root.a.d11"), True, 20),
        (tsfile(device="root.a.d11"), False, 20),
    ],
    ids=["the same file", "of its size", "of another size", "open"],
)
def test_a_deletion_made_once_more_beside_another_file_is_a_new_one(edge, content, closed, floor):
    edge.site.put(P)
    edge.load()
    edge.look()
    edge.mods(P, (1, 2))
    edge.look()
    edge.site.remove(P)
    edge.site.beside(edge.site.place(P), ".mods").unlink()
    edge.site.put(Q, content, resource=closed, age=1800.0)
    edge.mods(Q, (1, 2))
    look = edge.look(md5=edge.site.scanner.facts(edge.site.dirs).md5)
    assert [floor for _, floor in sight(look, Q).marks] == [floor]


def test_what_is_gone_keeps_its_last_look_while_the_directory_of_its_list_is_away(edge):
    edge.site.put(P)
    edge.site.put(Q)
    edge.load()
    edge.look()
    edge.site.place(P).unlink()
    assert edge.look().last(P) == 10
    listed, edge.entries = edge.entries, {}
    away = Unmounted(edge.site.data_dirs[0], "has no marker")
    edge.look(scan={"unmounted": (away,), "files": {}, "mounted": frozenset()})
    edge.entries = listed
    look = edge.look()
    assert look.last(P) == 10
