from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from common.names import FilePath
from common.wire import Propagate
from sender.kept.troubles import Trouble, TroubleKind
from sender.plan.additions import Addition
from sender.plan.plan import HeldWhy, plan
from sender.plan.plan_options import PlanOptions
from sender.plan.task_plan import TaskPlan, ToldDeletion
from sender.select.entry import Entry, EntryState
from sender.select.found import (
    LOCAL_FILES,
    Clash,
    LocalDeletions,
    LocalFile,
    ResourceStat,
    Scan,
    Span,
    Unmounted,
    Unreadable,
    Waiting,
    Why,
)
from sender.select.listed_table import LISTED_FILES
from sender.select.path_table import PathTable
from tests.support.site import FakeFacts, Site, path, tsfile

D0, D1 = Path("/d0"), Path("/d1")
A, B, C = path("1-1-0.tsfile"), path("2-1-0.tsfile"), path("3-1-0.tsfile")
AB = path("1-1-1.tsfile")
ALL = PlanOptions(Propagate.ALL)


def a_file(at=A, data_dir=D0, size=10, mtime_ns=1, inode=1):
    return LocalFile(at, data_dir, "", size, mtime_ns, inode)


def an_entry(at=A, data_dir=D0, size=10, mtime_ns=1, inode=1, md5="a" * 32, span=(0, 9), **more):
    return Entry(at, data_dir, size, mtime_ns, inode, md5, *span, **more)


def a_scan(*files, **more):
    more.setdefault("mounted", (D0, D1))
    return Scan({each.path: each for each in files}, **more)


def listed(*entries):
    return {each.path: each for each in entries}


def run(scan, entries=(), troubles=(), options=None, facts=None):
    return plan(
        scan,
        listed(*entries),
        {FilePath.parse(each.path): each for each in troubles},
        options or PlanOptions(),
        facts or FakeFacts(),
    )


def additions(result):
    return {each.path for task in result.tasks for each in task.additions}


def deletions(result):
    return {each.path for task in result.tasks for each in task.deletions}


def trouble(at=A, kind=TroubleKind.CONFLICT, size=10, mtime_ns=1, **more):
    return Trouble(path=at.text, size=size, mtime_ns=mtime_ns, kind=kind, reason="why", **more)


# -- new, replaced, gone, moved ----------------------------------------------------------------


def test_a_file_that_is_not_listed_is_new():
    result = run(a_scan(a_file()))
    assert result.tasks == (TaskPlan((Addition(a_file()),)),)
    assert result.files == 1
    assert [task.bytes for task in result.tasks] == [10]


def test_a_listed_file_with_the_same_numbers_needs_nothing_and_is_not_read():
    facts = FakeFacts()
    result = run(a_scan(a_file()), [an_entry()], facts=facts)
    assert not result.tasks
    assert result.unchanged == 1
    assert facts.asked == []


@pytest.mark.parametrize("change", [{"mtime_ns": 2}, {"inode": 2}, {"mtime_ns": 2, "inode": 2}])
def test_a_touched_file_with_the_same_content_is_only_refreshed(change):
    facts = FakeFacts({A: "a" * 32})
    result = run(a_scan(a_file(**change)), [an_entry()], facts=facts)
    assert not result.tasks
    assert result.refreshed == (an_entry(**change),)


@pytest.mark.parametrize("change", [{"mtime_ns": 2}, {"inode": 2}, {"size": 11}])
def test_a_listed_file_with_other_content_is_replaced(change):
    file = a_file(**change)
    result = run(a_scan(file), [an_entry()], facts=FakeFacts({A: "b" * 32}))
    assert result.tasks == (TaskPlan((Addition(file, replaces=True),)),)
    assert result.tasks[0].deleted_paths == [A]


def test_another_size_decides_without_reading():
    facts = FakeFacts()
    run(a_scan(a_file(size=11)), [an_entry()], facts=facts)
    assert facts.asked == []


def test_a_reused_inode_is_harmless():
    """The inode of a deleted file comes back under another name: names decide, not inodes."""
    result = run(a_scan(a_file(B, inode=1)), [an_entry(A, inode=1)])
    assert additions(result) == {B}
    assert deletions(result) == {A}


def test_a_file_that_changes_while_it_is_compared_waits():
    result = run(a_scan(a_file(inode=2)), [an_entry()], facts=FakeFacts({A: None}))
    assert not result.tasks
    assert "changed" in result.skipped[0].reason


def test_a_listed_file_that_is_no_more_is_gone():
    result = run(a_scan(), [an_entry()])
    assert result.tasks == (TaskPlan((), (ToldDeletion(A, D0),)),)


def test_a_file_that_moved_between_directories_is_neither_gone_nor_new():
    moved = a_file(data_dir=D1, inode=99)
    result = run(a_scan(moved), [an_entry()], facts=FakeFacts({A: "a" * 32}))
    assert not result.tasks
    assert result.moved == 1
    assert result.refreshed == (an_entry(data_dir=D1, inode=99),)


def test_an_entry_of_the_inventory_is_compared_before_it_is_believed():
    seen = an_entry(mtime_ns=0, inode=0, state=EntryState.LISTED, span=(None, None))
    same = run(a_scan(a_file()), [seen], facts=FakeFacts({A: "a" * 32}, {A: Span(0, 9)}))
    assert same.refreshed == (an_entry(),)
    other = run(a_scan(a_file()), [seen], facts=FakeFacts({A: "b" * 32}))
    assert other.tasks[0].additions == (Addition(a_file(), replaces=True),)


def test_an_entry_whose_facts_are_lost_is_offered_again():
    result = run(a_scan(a_file()), [Entry.unknown(A, D0)])
    assert additions(result) == {A}


# -- what is not gone --------------------------------------------------------------------------


def test_what_waits_is_not_gone():
    waiting = Waiting(A.text, D0, Why.CHANGING, "has mods", 10, A.group)
    scan = a_scan(waiting=(waiting,), others=frozenset({A}))
    result = run(scan, [an_entry()], options=ALL)
    assert not result.tasks
    assert result.held == ()


def test_the_list_of_an_unmounted_directory_makes_nothing_gone():
    away = Unmounted(D0, "has no marker")
    result = run(a_scan(mounted=(D1,), unmounted=(away,)), [an_entry()], options=ALL)
    assert not result.tasks
    assert [each.why for each in result.held] == [HeldWhy.UNSEEN]


def test_while_a_directory_is_away_deletions_of_the_others_wait():
    """The file may have moved to the tier that is not mounted."""
    away = Unmounted(D1, "has no marker")
    result = run(a_scan(a_file(B), mounted=(D0,), unmounted=(away,)), [an_entry()], options=ALL)
    assert additions(result) == {B}
    assert deletions(result) == set()
    assert result.held[0].why is HeldWhy.UNSEEN
    assert str(D1) in result.held[0].reason


@pytest.mark.parametrize("mode", list(Propagate))
def test_every_mode_tells_what_is_gone(mode):
    result = run(a_scan(), [an_entry(A)], options=PlanOptions(mode))
    assert deletions(result) == {A}


def test_what_was_not_looked_at_is_not_gone():
    away = Unreadable(D1, "unsequence/root.a", "a symlink")
    product = path("2-1-1.tsfile")
    result = run(a_scan(a_file(B), a_file(product), unreadable=(away,)), [an_entry(A)])
    assert additions(result) == {B}
    assert deletions(result) == set()
    assert [(each.path, each.why) for each in result.held] == [(A, HeldWhy.UNSEEN)]
    assert "/d1/unsequence/root.a: a symlink" in result.held[0].reason
    assert [each.file.path for each in result.skipped] == [product]


def test_another_partition_is_told_of_although_one_was_not_looked_at():
    away = Unreadable(D1, "unsequence/root.a/0/7", "a symlink")
    assert deletions(run(a_scan(unreadable=(away,)), [an_entry(A)])) == {A}


# -- partitions --------------------------------------------------------------------------------


def blockers():
    return {
        "damaged": {"waiting": (Waiting(C.text, D0, Why.UNREADABLE, "corrupt", 1, C.group),)},
        "clashing": {"clashes": (Clash(C, (a_file(C), a_file(C, D1))),)},
        "compacting": {"changing": {C.group: "x.inner: a compaction is under way"}},
        "late": {
            "waiting": (
                Waiting("unsequence/root.a/0/0/9-1-0.tsfile", D0, Why.CHANGING, "x", 1, C.group),
            )
        },
    }


@pytest.mark.parametrize("what", sorted(blockers()))
def test_in_a_mirror_ends_wait_while_anything_of_their_partition_is_not_ready(what):
    scan = a_scan(a_file(AB), a_file(B), others=frozenset({C}), **blockers()[what])
    elsewhere = path("1-1-0.tsfile", partition=1)
    result = run(scan, [an_entry(A), an_entry(elsewhere)], options=ALL)
    assert additions(result) == {B}
    assert deletions(result) == {elsewhere}
    assert [each.path for each in result.held] == [A]
    assert [each.file.path for each in result.skipped] == [AB]


@pytest.mark.parametrize("options", [ALL, None])
def test_a_file_that_the_database_still_writes_holds_no_ends(options):
    waiting = Waiting(C.text, D0, Why.OPEN, "open", 1, C.group)
    scan = a_scan(a_file(AB), waiting=(waiting,), others=frozenset({C}))
    result = run(scan, [an_entry(A)], **({} if options is None else {"options": options}))
    assert additions(result) == {AB}
    assert deletions(result) == {A}


@pytest.mark.parametrize("what", ["damaged", "clashing", "late"])
def test_originals_that_are_not_ready_hold_no_ends(what):
    result = run(a_scan(a_file(AB), others=frozenset({C}), **blockers()[what]), [an_entry(A)])
    assert additions(result) == {AB}
    assert deletions(result) == {A}


def test_a_product_that_is_not_ready_holds_ends_and_the_other_products():
    product = path("3-1-1.tsfile")
    waiting = Waiting(product.text, D0, Why.OPEN, "open", 1, product.group)
    scan = a_scan(a_file(AB), a_file(B), waiting=(waiting,), others=frozenset({product}))
    result = run(scan, [an_entry(A)])
    assert additions(result) == {B}
    assert [(each.path, each.why) for each in result.held] == [(A, HeldWhy.PARTITION)]
    assert [(each.file.path, each.held) for each in result.skipped] == [(AB, True)]


def test_what_is_filtered_out_blocks_nothing():
    waiting = Waiting("sequence/root.a", D0, Why.FILTERED, "not wanted", 0, A.group)
    assert deletions(run(a_scan(waiting=(waiting,)), [an_entry()])) == {A}


def test_a_held_file_is_not_sent_and_keeps_the_old_ones_there():
    result = run(
        a_scan(a_file(AB)),
        [an_entry(A)],
        [trouble(AB, TroubleKind.QUARANTINED, hold=True)],
    )
    assert not result.tasks
    assert result.skipped[0].file.path == AB
    assert result.held[0].why is HeldWhy.PARTITION
    assert AB.text in result.held[0].reason


def test_a_conflict_is_offered_again_in_one_task_with_what_it_would_replace():
    result = run(a_scan(a_file(AB)), [an_entry(A)], [trouble(AB)])
    (task,) = result.tasks
    assert additions(result) == {AB}
    assert deletions(result) == {A}
    assert task.without([AB]) == TaskPlan()


def test_other_content_under_the_path_ends_a_trouble():
    result = run(a_scan(a_file(size=99)), (), [trouble(kind=TroubleKind.QUARANTINED, hold=True)])
    assert additions(result) == {A}


def test_the_operators_retry_goes_with_the_plan():
    held = trouble(kind=TroubleKind.QUARANTINED, hold=False, retry=True)
    (task,) = run(a_scan(a_file()), (), [held]).tasks
    assert task.additions[0].retry


def test_a_file_that_was_given_up_is_in_nobodys_way():
    dropped = trouble(AB, TroubleKind.QUARANTINED, hold=True, dropped=True)
    result = run(a_scan(a_file(AB)), [an_entry(A)], [dropped])
    assert additions(result) == set()
    assert deletions(result) == {A}


def test_after_a_break_in_history_all_deletions_wait():
    result = run(
        a_scan(a_file(B)), [an_entry(A)], options=PlanOptions(hold_deletions="list was lost")
    )
    assert additions(result) == {B}
    assert [(each.why, each.reason) for each in result.held] == [(HeldWhy.HISTORY, "list was lost")]


# -- what is explained -------------------------------------------------------------------------


def many(count, partition=0):
    return [path(f"{n}-1-0.tsfile", partition=partition) for n in range(1, count + 1)]


def unseen(each, span=(None, None)):
    """An entry that only the inventory tells of."""
    return an_entry(each, mtime_ns=0, inode=0, state=EntryState.LISTED, span=span)


@pytest.mark.parametrize("gone", [5, 6, 10])
def test_how_many_may_go_is_the_receivers_affair(gone):
    paths = many(10)
    scan = a_scan(*[a_file(each) for each in paths[gone:]])
    result = run(scan, [an_entry(each) for each in paths], options=ALL)
    assert len(deletions(result)) == gone
    assert result.held == ()


def test_what_was_never_seen_here_goes_when_the_operator_says_that_nothing_is_missing():
    entries = [unseen(each) for each in many(10)]
    accepted = PlanOptions(Propagate.ALL, accept_source=True)
    assert deletions(run(a_scan(), entries, options=ALL)) == set()
    assert len(deletions(run(a_scan(), entries, options=accepted))) == 10


def test_deletions_that_a_compaction_explains_pass():
    entries = [unseen(each, (n * 10, n * 10 + 9)) for n, each in enumerate(many(20))]
    stray = an_entry(path("1-9-0.tsfile", partition=8))
    new = path("1-1-1.tsfile")
    facts = FakeFacts(spans={new: Span(0, 199)})
    result = run(a_scan(a_file(new)), [*entries, stray], options=ALL, facts=facts)
    assert len(deletions(result)) == 21
    explained = {each.path: each.explained for t in result.tasks for each in t.deletions}
    assert not explained.pop(stray.path)
    assert all(explained.values())


@pytest.mark.parametrize(
    ("new", "span"),
    [
        ("1-1-1.tsfile", Span(0, 198)),  # does not reach the last time
        ("1-1-1.tsfile", Span(1, 199)),  # nor the first
        ("1-1-0-0.tsfile", Span(0, 199)),  # not compacted more often
        ("other.tsfile", Span(0, 199)),  # not a database's name
        ("1-1-1.tsfile", None),  # unreadable
    ],
)
def test_what_does_not_cover_it_explains_nothing(new, span):
    entries = [unseen(each, (0, 199)) for each in many(20)]
    facts = FakeFacts(spans={path(new): span} if span else {})
    result = run(a_scan(a_file(path(new))), entries, options=ALL, facts=facts)
    assert deletions(result) == set()


def test_several_results_of_a_compaction_explain_together():
    entries = [unseen(each, (0, 199)) for each in many(10)]
    one, two = path("1-1-0-1.tsfile"), path("2-1-0-1.tsfile")
    facts = FakeFacts(spans={one: Span(0, 90), two: Span(100, 199)})
    result = run(a_scan(a_file(one), a_file(two)), entries, options=ALL, facts=facts)
    assert len(deletions(result)) == 10


def test_a_compaction_of_another_partition_explains_nothing():
    entries = [unseen(each, (0, 199)) for each in many(10)]
    new = path("1-1-1.tsfile", partition=1)
    facts = FakeFacts(spans={new: Span(0, 199)})
    assert deletions(run(a_scan(a_file(new)), entries, options=ALL, facts=facts)) == set()


def test_in_the_mode_replaced_the_receiver_judges():
    entries = [an_entry(each) for each in many(50)]
    result = run(a_scan(), entries)
    assert len(deletions(result)) == 50


def test_a_file_that_only_the_inventory_knows_is_not_deleted_unseen():
    entry = an_entry(mtime_ns=0, inode=0, state=EntryState.LISTED, span=(None, None))
    result = run(a_scan(), [entry], options=ALL)
    assert not result.tasks
    assert result.held[0].why is HeldWhy.UNSURE
    assert deletions(run(a_scan(), [entry])) == {A}  # kept there, where nothing replaces it


# -- tasks -------------------------------------------------------------------------------------


def test_tasks_end_at_borders_of_partitions_oldest_first():
    files = [a_file(each) for p in (2, -1, 0) for each in many(4, p)]
    result = run(a_scan(*files), options=PlanOptions(task_max_files=8))
    assert [[each.path.partition for each in task.additions] for task in result.tasks] == [
        [-1] * 4 + [0] * 4,
        [2] * 4,
    ]


def test_a_partition_without_deletions_may_be_cut():
    files = [a_file(each, size=10) for each in many(25)]
    by_count = run(a_scan(*files), options=PlanOptions(task_max_files=10))
    assert [len(task.additions) for task in by_count.tasks] == [10, 10, 5]
    by_size = run(a_scan(*files), options=PlanOptions(task_max_bytes=45))
    assert [task.bytes for task in by_size.tasks] == [40] * 6 + [10]
    by_receiver = run(a_scan(*files), options=PlanOptions(task_max_files=10, task_most=8))
    assert [len(task.additions) for task in by_receiver.tasks] == [8, 8, 8, 1]


def test_a_file_larger_than_a_task_gets_one_of_its_own():
    files = [a_file(each, size=100) for each in many(3)]
    result = run(a_scan(*files), options=PlanOptions(task_max_bytes=50))
    assert [len(task.additions) for task in result.tasks] == [1, 1, 1]


def test_ends_and_products_of_a_partition_are_never_cut():
    files = [a_file(each) for each in many(25)]
    files += [a_file(path(f"{n}-5-1.tsfile")) for n in range(15)]
    gone = [an_entry(path(f"{n}-9-0.tsfile")) for n in range(30)]
    *before, last = run(a_scan(*files), gone, options=PlanOptions(task_max_files=10)).tasks
    assert [len(each.additions) for each in before] == [10, 10, 5]
    assert (len(last.additions), len(last.deletions)) == (15, 30)
    (task,) = run(
        a_scan(*files), gone, options=replace(ALL, task_max_files=10, accept_source=True)
    ).tasks
    assert (len(task.additions), len(task.deletions)) == (40, 30)


def told(at, parts=1):
    """A deletion file, that is told in as many parts as its size says."""
    return LocalDeletions(at, D0, f"{at}.mods", "mods", (parts, 1, 1), 1)


def run_deletions(scan, due, entries=(), options=None):
    return plan(
        scan,
        listed(*entries),
        {},
        options or PlanOptions(task_most=10),
        FakeFacts(),
        due,
        tells=True,
        parts=lambda file: file.size,
    )


def parts_of(result):
    return [sum(each.size for each in task.deletion_files) for task in result.tasks]


@pytest.mark.parametrize("mode", [Propagate.REPLACED, Propagate.ALL])
def test_deletion_files_of_a_partition_are_cut_at_what_a_receiver_takes(mode):
    due = [told(each, 3) for each in many(11)]
    entries = [an_entry(each.path) for each in due]
    gone = an_entry(path("9-9-0.tsfile"))
    scan = a_scan(*(a_file(each.path) for each in due), deletions=tuple(due))
    options = PlanOptions(mode, task_most=10, accept_source=True)
    result = run_deletions(scan, due, [*entries, gone], options)
    assert parts_of(result) == [9, 9, 9, 6]
    assert deletions(result) == {gone.path}


def test_files_with_their_deletion_files_are_cut_at_what_a_receiver_takes():
    due = [told(each, 4) for each in many(5)]
    scan = a_scan(*(a_file(each.path) for each in due), deletions=tuple(due))
    result = run_deletions(scan, due)
    assert parts_of(result) == [8, 8, 4]
    for task in result.tasks:
        assert [each.path for each in task.additions] == [each.path for each in task.deletion_files]


def test_products_whose_deletion_files_are_too_many_wait_with_their_ends():
    due = [told(path(f"{n}-5-1.tsfile"), 4) for n in range(3)]
    scan = a_scan(*(a_file(each.path) for each in due), deletions=tuple(due))
    result = run_deletions(scan, due, [an_entry(path("9-9-0.tsfile"))])
    assert (additions(result), deletions(result)) == (set(), set())
    assert "limits.max_task_items" in result.held[0].reason


def test_a_deletion_file_of_more_parts_than_a_receiver_takes_is_named_and_others_go_on():
    due = [told(A, 11), told(B, 11), told(C, 1)]
    scan = a_scan(a_file(A), a_file(B), a_file(C), deletions=tuple(due))
    result = run_deletions(scan, due, [an_entry(A), an_entry(C)])
    assert [each.path for task in result.tasks for each in task.deletion_files] == [C]
    assert additions(result) == set()
    assert {each.path for each in result.held} == {A, B}
    assert [each.file.path for each in result.skipped] == [B]
    assert all("limits.max_task_items" in each.reason for each in (*result.held, *result.skipped))


def test_a_partition_of_more_than_a_receiver_takes_at_once_is_held_and_others_go_on():
    other = path("1-1-0.tsfile", partition=9)
    files = [a_file(each) for each in many(15)]
    product = a_file(path("1-5-1.tsfile"))
    gone = [an_entry(path(f"{n}-9-0.tsfile")) for n in range(11)]
    options = PlanOptions(task_most=10, task_max_files=4)
    result = run(a_scan(*files, product), [*gone, an_entry(other)], options=options)
    assert additions(result) == {each.path for each in files}
    assert deletions(result) == {other}
    assert {each.path for each in result.held} == {each.path for each in gone}
    assert all("11 of them go together" in each.reason for each in result.held)
    assert all("limits.max_task_items" in each.reason for each in result.held)
    (skipped,) = result.skipped
    assert (skipped.file, skipped.held) == (product, True)
    enough = run(a_scan(*files, product), gone, options=replace(options, task_most=11))
    assert len(deletions(enough)) == 11
    mirror = replace(ALL, task_most=15, accept_source=True)
    assert not deletions(run(a_scan(*files, product), gone, options=mirror))
    assert len(deletions(run(a_scan(*files, product), gone, options=replace(mirror, task_most=16))))


def test_twenty_files_out_and_one_in_is_one_task():
    gone = [an_entry(each) for each in many(20)]
    result = run(a_scan(a_file(AB)), gone, options=PlanOptions(task_max_files=1))
    (task,) = result.tasks
    assert (len(task.additions), len(task.deletions)) == (1, 20)
    assert task.without([AB]) == TaskPlan()
    assert len(task.without([AB], settled=True).deletions) == 20


def test_leaving_out_a_file_leaves_other_partitions_alone():
    other = path("1-1-0.tsfile", partition=1)
    task = TaskPlan(
        (Addition(a_file(AB)), Addition(a_file(other))),
        (ToldDeletion(A, D0), ToldDeletion(other, D0)),
    )
    assert task.without([AB]) == TaskPlan((Addition(a_file(other)),), (ToldDeletion(other, D0),))


def test_sequence_goes_before_unsequence_and_as_it_was_made():
    names = ["10-1-0.tsfile", "9-1-0.tsfile", "9-2-0.tsfile"]
    late = FilePath.parse("unsequence/root.a/0/0/1-1-0.tsfile")
    result = run(a_scan(a_file(late), *[a_file(path(n)) for n in names]))
    assert [each.path.name for each in result.tasks[0].additions] == [
        "9-1-0.tsfile",
        "9-2-0.tsfile",
        "10-1-0.tsfile",
        "1-1-0.tsfile",
    ]
    assert result.tasks[0].additions[-1].path == late


def test_homes_name_the_directory_of_every_path():
    task = TaskPlan((Addition(a_file(B, D1)),), (ToldDeletion(A, D0),))
    assert task.homes == {A: D0, B: D1}


# -- with real files ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Propagate))
def test_a_mods_file_deletes_nothing_anywhere(tmp_path, mode):
    site = Site(tmp_path)
    where = site.put(A)
    ledger = site.load_all()
    for sign in (".mods", ".merge", ".modification"):
        site.beside(where, sign).write_bytes(b"")
        result = site.plan(ledger, propagate=mode)
        assert not result.tasks
        assert result.held == ()
        site.beside(where, sign).unlink()


def test_a_real_replacement_a_touch_and_a_move(tmp_path):
    site = Site(tmp_path, dirs=2)
    for each in (A, B, C):
        site.put(each, tsfile(value=each.stem.created))
    ledger = site.load_all()
    site.put(A, tsfile(value=50))
    site.put(B, tsfile(value=2), age=10)
    site.remove(C)
    site.put(C, tsfile(value=3), data_dir=1)
    result = site.plan(ledger, propagate=Propagate.ALL)
    (task,) = result.tasks
    assert [(each.path, each.replaces) for each in task.additions] == [(A, True)]
    assert task.deletions == ()
    assert {each.path for each in result.refreshed} == {B, C}
    assert result.moved == 1
    ledger.refresh(result.refreshed)
    assert site.plan(ledger, propagate=Propagate.ALL).refreshed == ()


def test_what_the_database_has_by_now_does_not_wait_for_a_last_copy_in_conflict():
    copy, again = a_file(AB), a_file(path("1-1-2.tsfile"))
    scan = a_scan(again).with_last_copies([copy])
    result = run(scan, [an_entry(A), an_entry(B)], [trouble(AB)])
    assert (additions(result), deletions(result)) == ({again.path}, {A, B})
    assert [each.file for each in result.skipped] == [copy]
    assert additions(run(scan, [an_entry(again.path)], [trouble(AB)])) == {AB}
    other = run(scan, [an_entry(A)], [trouble(AB, TroubleKind.FAILED)])
    assert additions(other) == {AB, again.path}, "it waits for the wire alone"


def test_a_last_copy_is_sent_although_its_source_is_gone(tmp_path):
    site = Site(tmp_path)
    site.put(A)
    (file,) = site.scan().files.values()
    snapshot = site.snapshot()
    snapshot.take([file])
    site.remove(A)
    scan = site.scan().with_last_copies(snapshot.leftovers())
    result = run(scan)
    (addition,) = result.tasks[0].additions
    assert addition.path == A
    assert addition.file == replace(
        file, elsewhere=snapshot.rel(A), resource=addition.file.resource
    )


# -- resources ---------------------------------------------------------------------------------

TAKES = PlanOptions(resources=True)


def with_resource(mark, at=A):
    return replace(a_file(at), resource=mark and ResourceStat(*mark, 5))


def resources(result):
    found = [each for task in result.tasks for each in task.additions]
    assert all(each.resource_only for each in found)
    return [each.path for each in found]


@pytest.mark.parametrize("as_table", [False, True])
@pytest.mark.parametrize(
    ("known", "here", "told"),
    [
        ((8, 1), (8, 1), False),
        ((8, 1), (8, 2), True),
        ((8, 1), (9, 1), True),
        (None, (8, 1), True),  # of an earlier version
        ((0, 0), (8, 1), True),
        ((0, 0), None, False),
        ((8, 1), None, False),  # what vanished is not withdrawn
    ],
)
def test_a_resource_that_was_written_anew_is_told(known, here, told, as_table):
    files = [with_resource(here), with_resource((3, 3), B)]
    entries = [an_entry(resource_mark=known), an_entry(B, resource_mark=(3, 3))]
    scan = a_scan(*files)
    there = listed(*entries)
    if as_table:
        scan = replace(scan, files=PathTable.of(LOCAL_FILES, files))
        there = PathTable.of(LISTED_FILES, entries)
    for options, expected in ((TAKES, [A] if told else []), (PlanOptions(), [])):
        result = plan(scan, there, {}, options, FakeFacts())
        assert resources(result) == expected
        assert (result.files, result.unchanged) == (0, 2)


def test_of_many_resources_a_round_tells_as_many_as_a_task_has():
    files = [with_resource((8, 2), path(f"{n}-1-0.tsfile")) for n in range(9)]
    entries = [an_entry(each.path, resource_mark=(8, 1)) for each in files]
    options = replace(TAKES, task_max_files=4)
    assert len(resources(run(a_scan(*files), entries, options=options))) == 4


@pytest.mark.parametrize("mode", list(Propagate))
def test_a_resource_and_the_ends_of_its_partition_do_not_wait_for_each_other(mode):
    product = with_resource((8, 2), AB)
    entries = [an_entry(AB, resource_mark=(8, 1)), an_entry(B)]
    options = replace(TAKES, propagate=mode)
    (task,) = run(a_scan(product), entries, options=options).tasks
    assert [each.path for each in task.additions] == [AB]
    assert [each.path for each in task.without({AB}).deletions] == [B]


def test_what_is_sent_whole_takes_its_resource_along():
    file = replace(with_resource((8, 2)), mtime_ns=2)
    result = run(
        a_scan(file),
        [an_entry(resource_mark=(8, 1))],
        options=TAKES,
        facts=FakeFacts({A: "b" * 32}),
    )
    assert result.tasks == (TaskPlan((Addition(file, replaces=True),)),)


def test_a_touched_file_keeps_what_is_known_of_its_resource():
    file = replace(with_resource((8, 2)), inode=2)
    entry = an_entry(resource_mark=(8, 1))
    result = run(a_scan(file), [entry], options=TAKES, facts=FakeFacts({A: entry.md5}))
    assert (result.tasks, [each.resource_mark for each in result.refreshed]) == ((), [(8, 1)])
