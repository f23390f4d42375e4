from __future__ import annotations

from pathlib import Path

import pytest

from sender.plan.assurance import complete_until
from sender.select.entry import Entry
from sender.select.found import Clash, LocalFile, Scan, Span, Unmounted, Unreadable, Waiting, Why
from tests.support.site import FakeFacts, path

D0 = Path("/d0")
A, B, C = path("1-1-0.tsfile"), path("2-1-0.tsfile"), path("3-1-0.tsfile", partition=4)


def a_file(at=A, inode=1):
    return LocalFile(at, D0, "", 10, 1, inode)


def an_entry(at=A, last=100, md5="a" * 32):
    return Entry(at, D0, 10, 1, 1, md5, 0, last)


def a_scan(*files, **more):
    return Scan({each.path: each for each in files}, mounted=(D0,), **more)


def until(scan, *entries, **spans):
    facts = FakeFacts(spans={each.path: spans.get("span") for each in scan.files.values()})
    return complete_until(scan, {each.path: each for each in entries}, facts)


def test_all_loaded_it_is_the_last_time_that_is():
    assert until(a_scan(a_file(A), a_file(B)), an_entry(A, 50), an_entry(B, 100)) == 100


def test_nothing_there_nothing_is_said():
    assert until(a_scan()) is None


def test_an_unsent_file_holds_it_at_its_first_time():
    assert until(a_scan(a_file(A), a_file(B)), an_entry(A, 50), span=Span(20, 60)) == 20


def test_what_the_receiver_is_past_keeping_holds_up_nothing():
    facts = FakeFacts(spans={B: Span(1, 9)})
    scan, entries = a_scan(a_file(A), a_file(B)), {A: an_entry(A, 50)}
    assert complete_until(scan, entries, facts) == 1
    assert complete_until(scan, entries, facts, {B}) == 50


def test_a_changed_file_counts_as_unsent():
    assert until(a_scan(a_file(A, inode=2)), an_entry(A, 50), span=Span(20, 60)) == 20


def test_an_open_file_holds_it_at_the_begin_of_its_partition():
    waiting = Waiting(C.text, D0, Why.OPEN, "open", 1, C.group, 4000)
    assert until(a_scan(a_file(A), waiting=(waiting,)), an_entry(A, 9000)) == 4000


def test_a_filtered_group_holds_up_nothing():
    waiting = Waiting("sequence/root.x", D0, Why.FILTERED, "not wanted")
    assert until(a_scan(a_file(A), waiting=(waiting,)), an_entry(A, 90)) == 90


def test_clashing_files_count_as_unsent():
    clash = Clash(C, (a_file(C),))
    facts = FakeFacts(spans={C: Span(7, 8)})
    assert complete_until(a_scan(clashes=(clash,)), {A: an_entry(A)}, facts) == 7


@pytest.mark.parametrize(
    "unknown",
    [
        {"waiting": (Waiting("x.tsfile", D0, Why.OPEN, "open"),)},
        {"unmounted": (Unmounted(D0, "away"),)},
        {"unreadable": (Unreadable(D0, "sequence", "I/O error"),)},
        {"misplaced": (Unreadable(D0, C.directory, "is on another file system"),)},
    ],
)
def test_where_nothing_can_be_known_nothing_is_claimed(unknown):
    assert until(a_scan(a_file(A), **unknown), an_entry(A)) is None


def test_a_file_whose_times_cannot_be_read_is_not_passed_over():
    assert until(a_scan(a_file(A), a_file(B)), an_entry(A, 50)) is None
