from __future__ import annotations

import json
import struct

import msgspec
import pytest
from msgspec.structs import replace

from common import crash
from common.crash import SimulatedCrash
from common.digests import xxh3_128
from common.durable import temporary_name
from common.names import FilePath
from sender.kept.loaded_list.ledger import Ledger
from sender.kept.loaded_list.rebuilt import Rebuilt
from sender.select.entry import Entry, EntryState
from tests.support.site import ENDPOINT, Site, inventory, path, rebuild, tsfile

A, B, C = path("1-1-0.tsfile"), path("2-1-0.tsfile"), path("3-1-0.tsfile", partition=7)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path, dirs=2)


def an_entry(site, at=A, data_dir=0, md5="0" * 32, **changes):
    entry = Entry(at, site.data_dirs[data_dir], 10, 1_700_000_000_000_000_007, 77, md5, 1, 99)
    return replace(entry, **changes)


def begun(site):
    ledger = site.ledger()
    rebuild(ledger, (), {})
    return ledger


def lines(site, data_dir=0, name="last_local_files.txt"):
    return (site.sender_dir(data_dir) / name).read_text().splitlines()


def test_what_is_folded_is_on_the_list_after_a_restart(site):
    ledger = begun(site)
    ledger.fold([an_entry(site), an_entry(site, C, data_dir=1)])
    again = site.ledger()
    assert again.entries == ledger.entries
    assert set(again.entries) == {A, C}
    assert not again.doubts
    assert lines(site, 0) == [A.text]
    assert lines(site, 1) == [C.text]


def test_an_md5_keeps_its_leading_zeros(site):
    digest = "0" * 31 + "1"
    begun(site).fold([an_entry(site, md5=digest)])
    assert site.ledger().entries[A].md5 == digest


def test_a_storage_group_with_underscores_and_foreign_letters_keeps_its_name(site):
    odd = FilePath.parse("sequence/root.a_b_c d ü/0_1/-5/1-1-0.tsfile")
    begun(site).fold([an_entry(site, odd)])
    assert set(site.ledger().entries) == {odd}


def test_folding_twice_changes_nothing(site):
    ledger = begun(site)
    for _ in range(2):
        ledger.fold([an_entry(site, A), an_entry(site, B)], [C])
        ledger.fold([], [B])
        ledger.fold([an_entry(site, B)])
    assert set(site.ledger().entries) == {A, B}


def test_removed_and_added_in_one_is_replaced(site):
    ledger = begun(site)
    ledger.fold([an_entry(site)])
    ledger.fold([an_entry(site, size=20, md5="1" * 32)], [A])
    assert site.ledger().entries[A].size == 20


def test_a_file_that_moved_is_on_one_list(site):
    ledger = begun(site)
    ledger.fold([an_entry(site, A), an_entry(site, B)])
    ledger.refresh([an_entry(site, A, data_dir=1, inode=5)])
    assert lines(site, 0) == [B.text]
    assert lines(site, 1) == [A.text]
    again = site.ledger()
    assert again.entries[A].data_dir == site.data_dirs[1]
    assert again.entries[A].inode == 5


@pytest.mark.parametrize(("source", "target"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("point", ["ledger.last_deleted", "ledger.renamed"])
def test_a_file_that_moves_is_never_on_no_list(site, source, target, point):
    begun(site).fold([an_entry(site, data_dir=source)])

    def die(name):
        if name == point:
            raise SimulatedCrash(name)

    with pytest.raises(SimulatedCrash), crash.arm(die):
        site.ledger().refresh([an_entry(site, data_dir=target)])
    ledger = site.ledger()
    assert set(ledger.entries) == {A}
    ledger.refresh([an_entry(site, data_dir=target)])
    assert (lines(site, source), lines(site, target)) == ([], [A.text])


@pytest.mark.parametrize("point", ["current_written", "state_written", "last_deleted", "renamed"])
def test_a_list_cut_off_while_it_was_replaced_is_the_old_or_the_new_one_without_doubt(site, point):
    begun(site).fold([an_entry(site, A), an_entry(site, B)])
    before = site.ledger().entries

    def die(name):
        if name == f"ledger.{point}":
            raise SimulatedCrash(name)

    with pytest.raises(SimulatedCrash), crash.arm(die):
        site.ledger().fold(removed=[A])
    ledger = site.ledger()
    assert ledger.doubts == ()
    after = {at: each for at, each in before.items() if at != A}
    assert ledger.entries == (before if point in ("current_written", "state_written") else after)


def test_new_facts_alone_leave_the_list_as_it_is(site):
    ledger = begun(site)
    ledger.fold([an_entry(site)])
    before = (site.sender_dir() / "last_local_files.txt").stat()
    ledger.refresh([an_entry(site, mtime_ns=5)])
    after = (site.sender_dir() / "last_local_files.txt").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert site.ledger().entries[A].mtime_ns == 5


def test_the_first_contact_asks_for_the_inventory(site):
    ledger = site.ledger()
    assert ledger.doubts
    rebuild(ledger, (), {})
    assert not ledger.doubts
    assert not site.ledger().doubts


@pytest.mark.parametrize("name", ["last_local_files.txt", "local_files.state"])
def test_a_lost_file_of_the_list_is_noticed(site, name):
    begun(site).fold([an_entry(site)])
    (site.sender_dir() / name).unlink()
    ledger = site.ledger()
    assert ledger.doubts
    assert name in ledger.doubts[0]


def test_a_list_that_was_cut_at_a_line_is_noticed(site):
    begun(site).fold([an_entry(site, A), an_entry(site, B)])
    where = site.sender_dir() / "last_local_files.txt"
    where.write_bytes(where.read_bytes().splitlines(keepends=True)[0])
    assert "not as it was written" in site.ledger().doubts[0]


def test_a_state_file_of_a_newer_version_is_not_guessed_at(site):
    begun(site).fold([an_entry(site)])
    where = site.sender_dir() / "local_files.state"
    where.write_bytes(where.read_bytes().replace(b'"version":3', b'"version":4', 1))
    ledger = site.ledger()
    assert "version 4" in ledger.doubts[0]
    assert set(ledger.entries) == {A}
    assert ledger.entries[A].md5 == ""


def state_of_version_1(lists, rows):
    body = [lists, *rows]
    text = b"".join(msgspec.json.encode(each) + b"\n" for each in body)
    header = {"format": "tsferry.local_files", "version": 1, "xxh3": xxh3_128(text).hex()}
    return msgspec.json.encode(header) + b"\n" + text


def row_of_version_1(e):
    known = (e.size, e.mtime_ns, e.inode, e.md5, e.first_time, e.last_time)
    return [e.path.text, str(e.state), *known]


def listing(*paths):
    return "".join(f"{each}\n" for each in paths).encode()


@pytest.mark.parametrize(
    ("last", "current", "expected"),
    [((B,), None, {B}), ((A, B), (B,), {A, B}), (None, (B,), {B}), ((A, B), None, {A, B})],
)
def test_facts_of_an_earlier_release_are_taken_over(site, last, current, expected):
    """Left as it is, and at each step of taking A off the list, whose facts are there."""
    begun(site)
    entries = {at: an_entry(site, at, md5=f"{n:032x}") for n, at in enumerate((A, B))}
    sent = an_entry(site, path("4-1-0.tsfile"), md5="4" * 32, state=EntryState.SENT)
    lists = [xxh3_128(listing(*each)).hex() for each in ((B,), (A, B))]
    rows = [row_of_version_1(each) for each in (*entries.values(), sent)]
    where = site.sender_dir()
    (where / "local_files.state").write_bytes(state_of_version_1(lists, rows))
    for name, paths in (("last", last), ("current", current)):
        (where / f"{name}_local_files.txt").unlink(missing_ok=True)
        if paths is not None:
            (where / f"{name}_local_files.txt").write_bytes(listing(*paths))
    ledger = site.ledger()
    assert ledger.entries == {at: entries[at] for at in expected}
    assert ledger.pending == {sent.path: sent}
    # A list that is not the new one counts only while both are there.
    assert bool(ledger.doubts) is ((last, current) == ((A, B), None))
    ledger.become(Rebuilt(dict(ledger.entries), (), ()))
    assert b'"version":3' in (where / "local_files.state").read_bytes()
    again = site.ledger()
    assert (again.entries, again.pending, again.doubts) == (ledger.entries, ledger.pending, ())


def state_of_version_2(content):
    """A state of this version with the files of one directory, as version 2 had it."""
    lists, line, rest = content.split(b"\n", 3)[1:]
    files, size = json.loads(line)[3:]
    begin, each = size + 24 * files, struct.Struct("<33s16s")
    facts = b"".join(fact for fact, _ in each.iter_unpack(rest[begin:]))
    body = b"\n".join((lists, line, rest[:begin] + facts))
    header = {"format": "tsferry.local_files", "version": 2, "xxh3": xxh3_128(body).hex()}
    return json.dumps(header).encode() + b"\n" + body


def test_of_a_state_without_resources_all_else_is_known(site):
    entries = [an_entry(site, at, resource_mark=(8, 9)) for at in (A, B)]
    begun(site).fold(entries)
    assert list(site.ledger().entries.values()) == entries
    where = site.sender_dir() / "local_files.state"
    where.write_bytes(state_of_version_2(where.read_bytes()))
    ledger = site.ledger()
    assert ledger.doubts == ()
    assert list(ledger.entries.values()) == [replace(each, resource_mark=None) for each in entries]


def test_a_lost_list_is_rebuilt_from_the_inventory(site):
    site.put(A)
    site.put(C, data_dir=1)
    ledger = site.load_all()
    known = dict(ledger.entries)
    for number in (0, 1):
        (site.sender_dir(number) / "last_local_files.txt").unlink()
        (site.sender_dir(number) / "local_files.state").unlink()
    ledger = site.ledger()
    assert ledger.entries == {}
    rebuilt = rebuild(ledger, inventory(list(known.values())), site.scan().files)
    assert set(rebuilt.taken) == {A, C}
    assert lines(site, 0) == [A.text]
    assert lines(site, 1) == [C.text]
    plan = site.plan(ledger)
    assert plan.tasks == ()
    assert len(plan.refreshed) == 2
    ledger.refresh(plan.refreshed)
    assert site.ledger().entries == {  # all facts are back, but for the times
        at: replace(each) for at, each in known.items()
    }


def test_a_lost_state_is_filled_from_the_inventory_and_nothing_travels_again(site):
    site.put(A)
    ledger = site.load_all()
    known = list(ledger.entries.values())
    (site.sender_dir() / "local_files.state").write_bytes(b"\0" * 500)
    ledger = site.ledger()
    assert ledger.doubts
    rebuild(ledger, inventory(known), site.scan().files)
    plan = site.plan(ledger)
    assert plan.tasks == ()
    assert [each.path for each in plan.refreshed] == [A]


def test_a_rebuild_keeps_the_facts_that_the_inventory_confirms(site):
    ledger = begun(site)
    ledger.fold([an_entry(site, A), an_entry(site, B, md5="2" * 32)])
    items = inventory([an_entry(site, A), an_entry(site, B, md5="3" * 32)])
    rebuilt = rebuild(ledger, items, {})
    assert rebuilt.kept == 1
    assert rebuilt.taken == (B,)
    assert ledger.entries[A] == an_entry(site, A)
    assert ledger.entries[B].state is EntryState.LISTED
    assert ledger.entries[B].md5 == "3" * 32


def test_what_the_receiver_lost_leaves_the_list_so_that_it_is_sent_again(site):
    ledger = begun(site)
    ledger.fold([an_entry(site, A), an_entry(site, B)])
    quarantined = inventory([an_entry(site, B)], state="quarantined")
    rebuilt = rebuild(ledger, inventory([an_entry(site, A)]) + quarantined, {})
    assert rebuilt.dropped == (B,)
    assert set(site.ledger().entries) == {A}


def test_an_inventory_with_hostile_paths_adds_nothing(site):
    bad = [
        replace_path("../../etc/passwd"),
        replace_path("sequence/../x/0/0/a.tsfile"),
        replace_path("x"),
    ]
    ledger = site.ledger()
    rebuild(ledger, bad, {})
    assert ledger.entries == {}


def replace_path(text):
    from common.wire import InventoryEntry

    return InventoryEntry(path=text, size=1, md5="0" * 32, state="loaded")


def test_forgetting_makes_everything_be_compared_anew(site):
    site.put(A)
    ledger = site.load_all()
    known = list(ledger.entries.values())
    ledger.forget()
    assert ledger.entries == {}
    assert ledger.doubts
    assert site.ledger().doubts
    rebuild(ledger, inventory(known), site.scan().files)
    assert site.plan(ledger).tasks == ()


def test_both_lists_there_the_old_one_counts(site):
    begun(site).fold([an_entry(site, A)])
    current = site.sender_dir() / "current_local_files.txt"
    current.write_text(f"{B.text}\n")
    assert set(site.ledger().entries) == {A}
    assert not current.exists()


def test_only_the_new_list_there_it_counts(site):
    begun(site).fold([an_entry(site, A)])
    last = site.sender_dir() / "last_local_files.txt"
    last.rename(site.sender_dir() / "current_local_files.txt")
    ledger = site.ledger()
    assert set(ledger.entries) == {A}
    assert not ledger.doubts
    assert lines(site) == [A.text]


def test_reading_without_repair_writes_nothing(site):
    begun(site).fold([an_entry(site, A)])
    last = site.sender_dir() / "last_local_files.txt"
    current = site.sender_dir() / "current_local_files.txt"
    last.rename(current)
    (site.sender_dir() / temporary_name()).write_bytes(b"x")
    before = sorted(each.name for each in site.sender_dir().iterdir())
    ledger = Ledger.open(site.dirs, ENDPOINT, repair=False)
    assert set(ledger.entries) == {A}
    assert sorted(each.name for each in site.sender_dir().iterdir()) == before


def test_leftovers_of_a_crash_are_swept(site):
    begun(site)
    stray = site.sender_dir() / temporary_name()
    stray.write_bytes(b"half")
    site.ledger()
    assert not stray.exists()


def test_what_was_sent_is_known_after_a_crash(site):
    ledger = begun(site)
    ledger.fold([an_entry(site, B)])
    ledger.sent([an_entry(site, A), an_entry(site, B, md5="5" * 32, size=11)])
    again = site.ledger()
    assert again.entries[B].md5 == "0" * 32  # not loaded: the old content still is
    assert again.pending[B].md5 == "5" * 32
    assert set(again.pending) == {A, B}
    assert not again.doubts


def test_what_was_sent_before_is_forgotten_with_the_next_task(site):
    ledger = begun(site)
    ledger.sent([an_entry(site, A, data_dir=1)])
    ledger.sent([an_entry(site, B)])
    assert set(site.ledger().pending) == {B}


def test_an_unmounted_directory_keeps_its_list_to_itself(site):
    begun(site).fold([an_entry(site, A), an_entry(site, C, data_dir=1)])
    marker = site.data_dirs[1] / ".tsferry"
    content = marker.read_bytes()
    marker.unlink()
    site.reopen()
    assert set(site.ledger().entries) == {A}
    marker.write_bytes(content)
    site.reopen()
    assert set(site.ledger().entries) == {A, C}


def test_a_path_taken_from_the_inventory_while_its_disk_was_away_finds_home(site):
    """The list of the returning disk knows more than the inventory did."""
    site.put(C, data_dir=1)
    known = list(site.load_all().entries.values())
    marker = site.data_dirs[1] / ".tsferry"
    content = marker.read_bytes()
    marker.unlink()
    site.reopen()
    rebuild(site.ledger(), inventory(known), {})
    marker.write_bytes(content)
    site.reopen()
    ledger = site.ledger()
    assert ledger.entries[C] == known[0]
    plan = site.plan(ledger, propagate="all")
    assert (plan.tasks, plan.held, plan.unchanged) == ((), (), 1)


def test_the_files_of_other_receivers_are_apart(site):
    begun(site).fold([an_entry(site, A)])
    assert Ledger.open(site.dirs, "other_1").entries == {}
    assert Ledger.open(site.dirs, "other_1").doubts


def test_real_contents_are_what_the_list_holds(site):
    site.put(A, tsfile(5, 6))
    entry = site.load_all().entries[A]
    assert (entry.first_time, entry.last_time) == (5, 6)
