from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest

from common.listed import KnownRecords, deletions_text
from common.names import FilePath
from common.wire import InventoryEntry, ResourceEntry
from sender.kept.seen_looks.deletions_sight import DeletionsSight
from sender.plan.safe_to_delete import Holding, SafeFiles, safe_to_delete
from sender.select.entry import Entry
from sender.select.found import (
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

D0 = Path("/d0")
MD5, DIGEST = "a" * 32, "d" * 32


def seq(version: int, *, partition: int = 0, cross: int = 0) -> FilePath:
    return FilePath.parse(f"sequence/root.a/0/{partition}/{version}-{version}-0-{cross}.tsfile")


def late(version: int, *, partition: int = 0) -> FilePath:
    return FilePath.parse(f"unsequence/root.a/0/{partition}/{version}-{version}-0-0.tsfile")


A, B = seq(1), seq(2)


@dataclass
class Site:
    """Local files, and receivers that hold all of them unless a test says otherwise."""

    spans: dict[FilePath, Span | None] = field(default_factory=dict)
    receivers: dict[str, Holding] = field(default_factory=dict)
    deletions: dict[FilePath, LocalDeletions] = field(default_factory=dict)
    seen: dict[FilePath, DeletionsSight] = field(default_factory=dict)
    resources: dict[FilePath, ResourceStat] = field(default_factory=dict)
    scanned: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.receivers:
            self.receivers = {"one": self.holding()}

    def holding(self, *without: FilePath, mirrors: bool = False, **change) -> Holding:
        files = [path for path in self.spans if path not in without]
        there = {path.text: self.item(path, **change) for path in files}
        return Holding(
            {path: self.entry(path) for path in self.spans},
            there,
            mirrors,
            lambda each: self.seen.get(each.path),
        )

    def entry(self, path: FilePath) -> Entry:
        first, last = self.spans[path] or (None, None)
        return Entry(path, D0, 10, 1, 1, MD5, first, last)

    def item(self, path: FilePath, **change) -> InventoryEntry:
        fields = {"size": 10, "md5": MD5, "state": "loaded", "stands": True} | change
        return InventoryEntry(path=path.text, **fields)

    @property
    def scan(self) -> Scan:
        files = {
            path: LocalFile(path, D0, "", 10, 1, 1, self.resources.get(path)) for path in self.spans
        }
        return Scan(files, mounted=(D0,), deletions=tuple(self.deletions.values()), **self.scanned)

    def judge(self, scan: Scan | None = None, **more) -> SafeFiles:
        return safe_to_delete(
            scan or self.scan,
            self.receivers,
            span=lambda file: self.spans[file.path],
            resource_md5=lambda file: MD5,
            **more,
        )

    def safe(self, scan: Scan | None = None, **more) -> list[FilePath]:
        return [file.path for file in self.judge(scan, **more).safe]


def apart(*paths: FilePath) -> Site:
    """Files that do not overlap."""
    return Site({path: Span(at * 10, at * 10 + 5) for at, path in enumerate(paths)})


def together(*paths: FilePath) -> Site:
    """Files that all overlap."""
    return Site(dict.fromkeys(paths, Span(0, 9)))


# -- what receivers hold -------------------------------------------------------------------------


def test_what_every_receiver_holds_may_go():
    site = apart(A, B)
    site.receivers = {"one": site.holding(), "two": site.holding(B)}
    found = site.judge()
    assert [file.path for file in found.safe] == [A]
    assert found.kept == {B: "two: does not have it as it is here"}


def test_without_a_receiver_nothing_may_go():
    site = apart(A)
    site.receivers = {}
    assert site.safe() == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"size": 9}, "as it is here"),
        ({"md5": "b" * 32}, "as it is here"),
        ({"state": "quarantined"}, "quarantined there"),
        ({"stands": False, "verified": 7}, "on the disk"),
    ],
)
def test_what_a_receiver_does_not_hold_as_it_is_here_stays(change, why):
    site = apart(A)
    site.receivers = {"one": site.holding(**change)}
    found = site.judge()
    assert found.safe == ()
    assert why in found.kept[A]


def test_who_asks_for_proof_gets_what_every_receiver_has_verified():
    site = apart(A)
    site.receivers = {"one": site.holding(verified=7), "two": site.holding()}
    assert site.safe() == [A]
    assert site.safe(verified=True) == []
    site.receivers["two"] = site.holding(verified=9)
    assert site.safe(verified=True) == [A]


def test_nothing_may_go_where_one_receiver_deletes_what_is_gone_here():
    site = apart(A)
    site.receivers["two"] = site.holding(mirrors=True)
    assert "propagate_deletes = all" in site.judge().kept[A]


def test_a_file_that_changed_since_it_was_loaded_stays():
    site = apart(A)
    scan = site.scan
    touched = msgspec.structs.replace(scan.files[A], inode=2)
    changed = msgspec.structs.replace(scan, files={A: touched})
    assert site.safe(changed) == []


def test_a_file_of_unknown_content_stays():
    site = apart(A)
    unknown = msgspec.structs.replace(site.entry(A), md5="")
    site.receivers = {"one": replace(site.holding(md5=""), listed={A: unknown})}
    assert site.safe() == []


# -- what belongs to a file ----------------------------------------------------------------------


def deleted(size: int = 30, told: int = 30, digest: str = DIGEST, here: int = 30):
    site = apart(A, B)
    identity = (here, 1, 5)
    site.deletions[A] = LocalDeletions(A, D0, f"{A.text}.mods", "mods", identity, 1)
    site.seen[A] = DeletionsSight(identity, size, DIGEST, (), told)
    known = deletions_text({"mods": KnownRecords(size, digest)})
    site.receivers = {"one": site.holding(deletions=known)}
    return site


def test_a_file_goes_once_all_its_deletions_are_committed():
    assert deleted().safe() == [A, B]


def test_a_file_stays_while_a_deletion_is_not_told():
    assert deleted(told=0).safe() == [B]
    site = deleted()
    site.seen[A] = DeletionsSight(site.seen[A].identity, 30, DIGEST, (), 10, "e" * 32)
    known = deletions_text({"mods": KnownRecords(10, "e" * 32)})  # all that it was told
    site.receivers = {"one": site.holding(deletions=known)}
    assert site.safe() == [B]


def test_a_file_stays_while_a_record_of_its_deletion_file_is_being_written():
    assert deleted(here=31).safe() == [B]


def test_a_file_stays_if_its_receiver_has_other_deletions_than_it_was_told():
    assert deleted(digest="e" * 32).safe() == [B]
    site = deleted()
    site.receivers = {"one": site.holding()}  # an old copy, or one that knows of none
    assert site.safe() == [B]


def test_a_file_stays_while_its_deletion_file_is_not_as_it_was_seen():
    site = deleted()
    site.seen[A] = replace_sight(site.seen[A], (30, 2, 5))
    assert site.safe() == [B]
    del site.seen[A]  # it cannot be read, or was never looked at
    assert site.safe() == [B]


def replace_sight(sight: DeletionsSight, identity) -> DeletionsSight:
    return DeletionsSight(identity, sight.size, sight.digest, sight.marks, sight.told)


def test_an_empty_deletion_file_says_nothing():
    site = deleted(here=0)
    site.seen.clear()
    assert site.safe() == [A, B]


@pytest.mark.parametrize(
    ("there", "safe"),
    [
        (ResourceEntry(size=4, md5=MD5), True),
        (ResourceEntry(size=5, md5=MD5), False),
        (ResourceEntry(size=4, md5="b" * 32), False),
        (None, False),
    ],
)
def test_a_file_goes_only_with_the_resource_that_is_committed(there, safe):
    site = apart(A)
    site.resources[A] = ResourceStat(4, 1, 7)
    site.receivers = {"one": site.holding(resource=there)}
    assert site.safe() == ([A] if safe else [])


# -- what stands in the way ----------------------------------------------------------------------


def test_the_lowest_rank_comes_first():
    site = apart(late(1), seq(9), seq(2, cross=1), seq(2), seq(3, partition=7))
    assert site.safe() == [seq(2), seq(2, cross=1), seq(9), late(1), seq(3, partition=7)]


def test_a_late_file_stays_while_what_it_overlaps_stands():
    site = together(A, late(2))
    found = site.judge()
    assert [file.path for file in found.safe] == [A]
    assert found.kept == {late(2): f"overlaps {A}, which stands"}
    del site.spans[A]
    assert site.safe() == [late(2)]


def test_late_files_go_one_after_the_other():
    site = together(late(3), late(2), late(4))
    assert site.safe() == [late(2)]


def test_a_late_file_stays_while_one_above_it_is_held_nowhere():
    site = together(late(2), late(4))
    site.receivers = {"one": site.holding(late(4))}
    assert site.safe() == []


def test_what_lies_elsewhere_stands_in_nobodys_way():
    site = apart(A, late(2))
    site.spans |= {seq(5, partition=1): Span(0, 99)}
    site.receivers = {"one": site.holding(A)}
    assert site.safe() == [late(2), seq(5, partition=1)]


def test_files_that_are_not_in_question_stand_in_the_way():
    site = together(A, late(2))
    found = site.judge(chosen=lambda file: file.path == late(2))
    assert found.safe == ()
    assert set(found.kept) == {late(2)}


def test_a_file_whose_times_cannot_be_read_may_have_any():
    assert Site({A: None, late(2): Span(20, 29)}).safe() == [A]
    assert Site({A: Span(0, 9), late(2): None}).safe() == [A]


def waiting(name: str, why: Why = Why.OPEN, **more) -> Waiting:
    return Waiting(f"sequence/root.a/0/0/{name}", D0, why, "has no .resource", 1, A.group, **more)


@pytest.mark.parametrize(
    "standing",
    [
        {"waiting": (waiting("9-9-0-0.tsfile"),)},
        {"waiting": (waiting("9-9-0-0.tsfile", Why.UNREADABLE),)},
        {"clashes": (Clash(seq(9), ()),)},
        {"unmounted": (Unmounted(Path("/d1"), "has no marker"),)},
        {"unreadable": (Unreadable(D0, "sequence/root.a", "a symlink"),)},
    ],
)
def test_what_may_have_any_time_holds_late_files_and_no_others(standing):
    site = apart(A, late(2))
    site.scanned = standing
    assert site.safe() == [A]


def test_what_is_outside_the_filter_stands_in_nobodys_way():
    site = apart(A, late(2))
    site.scanned = {"waiting": (waiting("9-9-0-0.tsfile", Why.FILTERED),)}
    assert site.safe() == [A, late(2)]


@pytest.mark.parametrize(
    "moving",
    [
        {"changing": {A.group: "1-1-1-0.tsfile.inner: a compaction is under way"}},
        {"moving": (Unreadable(D0, "sequence/root.a", "changed during the scan"),)},
        {"waiting": (waiting("1-1-1-0.tsfile"),)},
    ],
)
def test_nothing_goes_while_a_compaction_may_be_reading_it(moving):
    site = apart(A, late(2), seq(5, partition=1))
    site.scanned = moving
    safe = [path for path in site.safe() if path.group == A.group]
    assert safe == []


def test_many_files_are_judged_by_what_overlaps_them():
    ordered = {seq(number): Span(number * 10, number * 10 + 9) for number in range(1, 60)}
    lates = {late(100 + number): Span(number * 10 + 3, number * 10 + 4) for number in range(1, 60)}
    site = Site(ordered | lates)
    assert len(site.safe()) == 59
    for number in (*range(1, 20), *range(30, 60)):
        del site.spans[seq(number)]
    assert [path for path in site.safe() if path.kind == "unsequence"] == [
        late(100 + number) for number in range(1, 60) if not 20 <= number < 30
    ]
