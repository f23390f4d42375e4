"""A round against a receiver that does as it is told by the test."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from unittest.mock import Mock

import msgspec
import pytest

from common import crash, wire
from common.config import Secret
from common.crash import SimulatedCrash
from common.durable import Tree
from common.errors import (
    CloneError,
    ConflictError,
    DigestError,
    ForbiddenError,
    GoneError,
    NotATsFileError,
    TooLargeError,
    TsferryError,
    UnreachableError,
)
from common.wire import Action, History, Outcome, Result
from sender.config import StorageGroupFilter
from sender.kept.receiver_state import changing_troubles
from sender.round.round_words.round_report import as_text
from sender.select.facts import FileFacts
from sender.select.found import stat_identity
from sender.send.sent_bytes.sending import Sending
from tests.support.edge import Edge
from tests.support.scripted_receiver import (
    Alter,
    Answer,
    Drop,
    Reply,
    Stall,
    html,
    problem,
    redirect,
    wait_until,
)
from tests.support.tsfile_bytes import build


@pytest.fixture
def edge(receiver, tmp_path):
    return Edge(
        tmp_path / "edge", receiver.url, transfer={"batch_bytes": 1000, "chunk_bytes": 65536}
    )


def in_sync(edge: Edge, receiver) -> None:
    loaded = {p: hashlib.md5(data).hexdigest() for p, data in receiver.loaded.items()}
    assert loaded == edge.files
    assert edge.listed == sorted(edge.files)
    assert edge.leftovers == []


# -- the plan's answers --------------------------------------------------------------------------


def test_plan_entries_tell_what_spares_bytes(edge, receiver):
    path = edge.write(1, device="root.a.d7", points=5)
    edge.round()
    (entry,) = receiver.plans
    assert (entry.path, entry.size) == (path, len(edge.content(path)))
    assert (entry.devices, entry.first_time, entry.last_time) == (["root.a.d7"], 1000, 1004)
    assert entry.resource is not None
    assert entry.resource.md5 == hashlib.md5(b"resource").hexdigest()
    (end,) = receiver.manifests.values()
    assert [(each.path, each.series, each.points) for each in end.manifest] == [(path, 1, 5)]


def written_anew(edge: Edge, path: str, content: bytes) -> None:
    (edge.data / f"{path}.resource").write_bytes(content)


def test_a_resource_written_anew_travels_without_its_file(edge, receiver, monkeypatch):
    monkeypatch.setattr(FileFacts, "md5", Mock(side_effect=AssertionError("reads a whole file")))
    path, other = edge.write(1), edge.write(2)
    edge.round()
    receiver.received.clear()
    receiver.resources = True
    receiver.plans.clear()
    written_anew(edge, path, b"another resource")
    report = edge.round()
    assert (report.exit_code, report.resources, report.sent, report.already) == (0, 1, 0, 0)
    (entry,) = receiver.plans
    assert (entry.path, entry.replaces, entry.md5) == (path, False, edge.files[path])
    assert receiver.received == {f"{path}.resource": b"another resource"}
    assert edge.round().quiet
    written_anew(edge, other, b"resource")  # with the bytes that it had
    receiver.decide = lambda entry: wire.PlanDecision(
        path=entry.path, action=Action.ALREADY, md5=edge.files[entry.path]
    )
    report = edge.round()
    assert (report.resources, report.bytes) == (1, 0)
    assert edge.round().quiet
    in_sync(edge, receiver)


def test_of_a_copy_in_the_snapshot_the_resource_is_not_told_again_and_again(
    edge, receiver, monkeypatch
):
    """Where there are no links a copy is sent, which has other numbers."""
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EPERM, "no links")))
    receiver.resources = True
    path = edge.write(1)
    edge.round()
    assert edge.round().quiet
    written_anew(edge, path, b"another resource")
    assert edge.round().resources == 1
    assert edge.round().quiet


def test_a_receiver_of_an_earlier_version_is_told_of_no_resource(edge, receiver, caplog):
    path = edge.write(1)
    edge.round()
    receiver.received.clear()
    written_anew(edge, path, b"another resource")
    caplog.set_level("INFO")
    for _ in range(2):
        assert edge.round().quiet
    assert f"as it is of an earlier version; that of {path}" in caplog.text
    assert len(receiver.plans) == 1
    receiver.resources = True
    assert edge.round().resources == 1
    assert receiver.received == {f"{path}.resource": b"another resource"}


@pytest.mark.parametrize(
    ("action", "rounds"), [("refused", 1), ("conflict", 1), ("expired", 1), ("send", 3)]
)
def test_a_resource_whose_file_is_not_there_is_left(edge, receiver, action, rounds):
    """Nor is the file sent: whether it is to come, the lists say. What is refused is not asked."""
    path = edge.write(1)
    edge.round()
    receiver.received.clear()
    receiver.resources = True
    written_anew(edge, path, b"another resource")
    receiver.plans.clear()
    receiver.decide = lambda entry: wire.PlanDecision(
        path=entry.path, action=Action(action), resource=True, reason="why"
    )
    for _ in range(3):
        report = edge.round()
        assert (report.exit_code, report.sent, report.bytes) == (0, 0, 0)
    assert len(receiver.plans) == rounds
    assert receiver.received == {}
    assert edge.listed == [path]


def test_pages_keep_to_the_receivers_limits(edge, receiver):
    receiver.limits = msgspec.structs.replace(receiver.limits, max_page_items=3)
    for number in range(8):
        edge.write(number)
    edge.round()
    assert receiver.count("POST /tasks/.*/plan") == 3
    in_sync(edge, receiver)


@pytest.mark.parametrize(("files", "expected"), [(1, 65536), (2, 65536), (4, 32768), (6, 32768)])
def test_files_on_their_way_together_share_the_memory_of_blocks(
    edge, receiver, monkeypatch, files, expected
):
    monkeypatch.setattr("sender.send.sent_bytes.sending._TOGETHER", 2 * 65536)
    for number in range(files):
        edge.write(number, size=300_000)
    edge.round()
    sent = [len(each.body) for each in receiver.requests if each.method == "PATCH"]
    assert max(sent) == expected
    in_sync(edge, receiver)


def test_a_manifest_that_fits_no_body_goes_in_pages(edge, receiver):
    receiver.limits = msgspec.structs.replace(
        receiver.limits, max_page_bytes=8192, max_task_items=1000
    )
    gone = [edge.write(number) for number in range(60)]
    edge.round()
    files = [edge.write(number) for number in range(100, 130)]
    for path in gone:
        edge.remove(path)
    receiver.pages.clear()
    assert edge.round().exit_code == 0
    assert [each.number for each in receiver.pages] == list(range(len(receiver.pages)))
    assert len(receiver.pages) > 2
    *_, end = receiver.manifests.values()
    assert sorted(each.path for each in end.manifest) == files
    assert end.deleted == gone
    in_sync(edge, receiver)


def cut_off_at(point: str, nth: int = 1):
    """The round of the edge is cut off where it comes to a point for the n-th time."""
    passed = []

    def fail(name: str) -> None:
        passed.append(name)
        if passed.count(point) == nth:
            raise SimulatedCrash(name)

    return crash.arm(fail)


@pytest.mark.parametrize("links", [True, False])
def test_a_last_copy_that_cannot_be_read_keeps_no_other_file_back(
    edge, receiver, monkeypatch, links
):
    path, other = edge.write(1), edge.write(2)
    if not links:
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EPERM, "no links")))
    with cut_off_at("task.snapshot"), pytest.raises(SimulatedCrash):
        edge.round()
    edge.remove(path)
    (copy,) = edge.data.glob(f"sync-sender/*/snapshot/{path}")
    inode, pread = copy.stat().st_ino, os.pread

    def broken(fd: int, *args: int) -> bytes:
        if os.fstat(fd).st_ino == inode:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(fd, *args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", broken)
        for _ in range(2):
            report = edge.round()
            assert (report.error, edge.listed) == (None, [other])
            assert [each.file for each in report.changed] == [path]
    assert edge.round().sent == 1
    assert list(receiver.loaded) == [other, path]
    assert edge.leftovers == []


@pytest.mark.parametrize("suffix", ["", ".resource"])
@pytest.mark.parametrize(
    ("call", "code"), [("sync_file", errno.EACCES), ("copy", errno.EIO), ("copy", errno.ESTALE)]
)
def test_what_may_not_be_read_any_more_keeps_no_other_file_back(
    edge, receiver, monkeypatch, suffix, call, code
):
    """A scan reads no resource, and no tail twice."""
    path, other = edge.write(1), edge.write(2)
    plain = getattr(Tree, call)

    def refused(tree: Tree, rel: str, *args: str) -> None:
        if rel == path + suffix:
            raise OSError(code, os.strerror(code))
        plain(tree, rel, *args)

    monkeypatch.setattr(Tree, call, refused)
    if call == "copy":
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EPERM, "no links")))
    report = edge.round()
    assert (report.error, edge.listed) == (None, [other])
    assert [each.file for each in report.changed] == [path]
    assert "cannot be read" in report.changed[0].reason
    assert edge.leftovers == []


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("says", ["wanted", "rewound"])
def test_the_last_copy_of_what_the_receiver_has_lost_meanwhile_is_sent_again(
    edge, receiver, monkeypatch, says, links
):
    """The links of a task are still there when it is lost: the sender died before they went."""
    path = edge.write(1)
    if not links:
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EPERM, "no links")))
    with cut_off_at("recovery.logs_removed", 2), pytest.raises(SimulatedCrash):
        edge.round()
    assert edge.listed == [path]
    edge.remove(path)
    lost = receiver.loaded.pop(path)
    if says == "wanted":
        md5 = hashlib.md5(lost).hexdigest()
        receiver.wanted = [wire.Wanted(path=path, md5=md5, size=len(lost), reason="damaged")]
    else:
        receiver.history = History.REWOUND
    assert edge.round().sent == 1
    assert receiver.loaded == {path: lost}
    receiver.wanted, receiver.history = [], None
    assert edge.round().deleted == 1  # as it is gone here
    assert edge.leftovers == []


@pytest.mark.parametrize("call", ["plan", "end"])
def test_a_task_that_has_become_too_much_begins_anew_in_the_same_round(edge, receiver, call):
    edge.write(1)
    receiver.fault("POST /tasks/.*/end", *[Answer(problem(UnreachableError))] * 6)
    assert edge.round().error is not None
    (begun,) = receiver.tasks
    receiver.faults.clear()
    receiver.fault(f"POST /tasks/{begun}/{call}", *[Answer(problem(TooLargeError))] * 3)
    assert (edge.round().exit_code, receiver.count(f"POST /tasks/{begun}/plan")) == (0, 2)
    assert len(receiver.tasks) == 2
    in_sync(edge, receiver)


def test_an_older_receiver_gets_the_end_in_one_body(edge, receiver):
    receiver.limits = msgspec.structs.replace(receiver.limits, max_page_bytes=8192)
    for number in range(60):
        edge.write(number)
    assert edge.round().exit_code == 0
    assert receiver.pages == []
    in_sync(edge, receiver)


def test_thousands_of_devices_do_not_burst_a_page(edge, receiver):
    receiver.limits = msgspec.structs.replace(receiver.limits, max_page_bytes=4096)
    devices = {f"root.a.d{number:05}": {"s1": [(1, 1)]} for number in range(500)}
    edge.put(edge.path(1), build(devices))
    edge.write(2)
    assert edge.round().exit_code == 0
    assert [len(each.devices) for each in receiver.plans] == [0, 1]
    in_sync(edge, receiver)


def test_a_file_that_is_loaded_already_is_compared_before_it_counts(edge, receiver):
    path = edge.write(1)
    receiver.loaded[path] = edge.content(path)
    receiver.history = History.CONTINUES
    edge.round()
    receiver.history = None
    report = edge.round(forget=True)
    assert (report.bytes, report.already) == (0, 1)
    in_sync(edge, receiver)


def test_other_content_that_claims_to_be_the_same_is_a_conflict(edge, receiver):
    path = edge.write(1)

    def decide(entry):
        return wire.PlanDecision(path=entry.path, action=Action.ALREADY, md5="0" * 32)

    receiver.decide = decide
    report = edge.round()
    assert report.exit_code == 3
    assert [each.file for each in report.conflicts] == [path]
    assert [each.md5 for each in receiver.plans] == [None, edge.files[path]]
    assert edge.listed == []


def test_a_verified_file_is_not_sent_again(edge, receiver):
    path = edge.write(1)
    receiver.received[path] = edge.content(path)
    report = edge.round()
    assert (report.sent, report.bytes) == (1, 0)
    in_sync(edge, receiver)


def test_a_verified_file_with_other_content_is_sent_afresh(edge, receiver):
    path = edge.write(1, size=5000)
    receiver.received[path] = b"x" * 5000
    report = edge.round()
    assert (report.sent, report.exit_code) == (1, 0)
    in_sync(edge, receiver)


@pytest.mark.parametrize("offset", [10**9, 4000])
def test_a_partial_upload_that_cannot_be_ours_is_not_gone_on_with(edge, receiver, offset):
    path = edge.write(1, size=5000)

    def decide(entry):
        return wire.PlanDecision(
            path=entry.path, action=Action.RESUME, upload="feed", offset=offset
        )

    receiver.decide = decide
    report = edge.round()
    assert (report.sent, report.exit_code) == (1, 0), report.as_json()
    assert receiver.loaded[path] == edge.content(path)


def test_files_that_are_refused_keep_their_partitions_deletions_back(edge, receiver):
    old, kept = edge.write(1), edge.write(2)
    other = edge.write(3, sg="root.b")
    edge.with_settings(propagate_deletes="all")
    edge.round()
    edge.remove(old)
    edge.remove(other)
    new = edge.write(4)
    receiver.decide = lambda entry: wire.PlanDecision(
        path=entry.path, action=Action.CONFLICT, device="root.a.d1", reason="another's"
    )
    report = edge.round()
    assert report.exit_code == 3
    assert receiver.deleted_pages == [other]
    assert edge.listed == sorted([old, kept])
    assert [each.file for each in report.held] == [old]
    assert new in report.held[0].reason


@pytest.mark.parametrize("mode", ["all", "never"])
def test_another_mode_is_told_in_its_first_round_though_there_is_nothing_to_do(
    edge, receiver, mode
):
    edge.write(1)
    assert edge.round().tasks
    assert not edge.round().tasks
    edge.with_settings(propagate_deletes=mode)
    assert edge.round().tasks
    told = [each for each in receiver.requests if each.name.startswith("PUT /tasks/")][-1]
    assert wire.decode(told.body, wire.StartRequest, "start").propagate == mode
    assert not edge.round().tasks


def test_what_is_held_is_not_offered_again_until_the_operator_says_so(edge, receiver):
    path = edge.write(1, size=5000)
    refusal = wire.PlanDecision(path=path, action=Action.REFUSED, reason="not a TsFile", hold=True)
    receiver.decide = lambda entry: refusal
    assert edge.round().exit_code == 3
    asked = len(receiver.plans)
    report = edge.round()
    assert [each.file for each in report.quarantined] == [path]
    assert len(receiver.plans) == asked
    remote = edge.remote()
    with remote.sync_tree() as sync, changing_troubles(sync, remote.directory) as troubles:
        troubles.retry()
    receiver.decide = lambda entry: None
    assert edge.round().exit_code == 0
    assert receiver.plans[-1].retry
    in_sync(edge, receiver)


def test_what_the_operator_says_in_the_middle_of_a_round_holds_against_its_answer(edge, receiver):
    path = edge.write(1, size=5000)
    remote = edge.remote()
    deleted = wire.PlanDecision(
        path=path, action=Action.EXPIRED, reason="deleted", hold=True, commit=7
    )

    def saying(entry: wire.PlanEntry) -> wire.PlanDecision:
        with remote.sync_tree() as sync, changing_troubles(sync, remote.directory) as troubles:
            troubles.retry_deleted()
        return deleted

    receiver.decide = lambda entry: deleted
    edge.round()
    with remote.sync_tree() as sync, changing_troubles(sync, remote.directory) as troubles:
        troubles.retry_deleted()
    receiver.decide = saying
    edge.round()
    receiver.decide = lambda entry: None
    assert edge.round().exit_code == 0
    assert (receiver.plans[-1].retry, receiver.plans[-1].answered) == (True, 7)
    in_sync(edge, receiver)


def test_content_is_given_up_for_good_by_all_of_its_bytes_and_not_by_its_end(edge, receiver):
    """What was deleted there may have had bad bytes, before an end that is the same."""
    paths = [edge.write(number, size=5000) for number in (1, 2)]
    bad = hashlib.md5(b"bad", usedforsecurity=False).hexdigest()
    deleted = {bad, edge.files[paths[1]]}

    def decide(entry):
        if entry.md5 is not None and entry.md5 not in deleted:
            return None
        return wire.PlanDecision(path=entry.path, action=Action.EXPIRED, reason="why", hold=True)

    receiver.decide = decide
    report = edge.round()
    assert (report.sent, [each.file for each in report.expired]) == (1, [paths[1]])
    asked = [(each.path, each.md5 is None) for each in receiver.plans]
    assert asked == [(each, unknown) for unknown in (True, False) for each in paths]


# -- the bytes -----------------------------------------------------------------------------------


def test_one_poison_file_does_not_stop_the_queue(edge, receiver):
    bad = edge.write(1, size=5000)
    for number in range(2, 6):
        edge.write(number, size=4000 + number)
    honest = receiver.work

    def work(request):
        if request.method == "PATCH" and len(request.body) == 5000:
            return problem(NotATsFileError, "no TsFile")
        return honest(request)

    receiver.work = work
    report = edge.round()
    assert report.sent == 4
    assert [each.file for each in report.quarantined] == [bad]


def test_a_file_that_fails_max_retries_is_left_and_the_next_round_tries_again(edge, receiver):
    bad = edge.write(1, size=5000)
    good = edge.write(2, size=6000)
    honest = receiver.work
    broken = True

    def work(request):
        if broken and request.method == "PATCH" and len(request.body) == 5000:
            return problem(TsferryError, "oops")
        return honest(request)

    receiver.work = work
    report = edge.round()
    assert [each.file for each in report.failed] == [bad]
    assert edge.listed == [good]
    assert sum(len(r.body) == 5000 for r in receiver.requests if r.method == "PATCH") == 6
    broken = False
    assert edge.round().exit_code == 0
    in_sync(edge, receiver)


def test_a_receiver_that_goes_away_ends_the_round_soon(edge, receiver):
    edge.with_settings(transfer=msgspec.structs.replace(edge.config.transfer, parallel=2))
    for number in range(30):
        edge.write(number, size=5000)
    receiver.fault("POST /files", *(Drop() for _ in range(10_000)))
    receiver.fault("GET /tasks", *(Drop() for _ in range(10_000)))
    report = edge.round()
    assert report.exit_code == 4
    assert receiver.count("POST /files") < 40


def test_a_token_revoked_under_way_ends_the_round(edge, receiver):
    from common.errors import UnauthorizedError

    for number in range(30):
        edge.write(number, size=5000)
    receiver.fault("PATCH /files", *(Answer(problem(UnauthorizedError)) for _ in range(10_000)))
    report = edge.round()
    assert report.exit_code == 4
    assert receiver.count("PATCH") <= 15  # those that were under way; there are 30 files


def test_a_file_that_changes_while_it_is_sent_is_dropped_from_the_task(edge, receiver):
    path, other = edge.write(1, size=200_000), edge.write(2)

    def touch(reply: Reply) -> Reply:
        with (edge.data / path).open("r+b") as stream:
            stream.seek(100_000)
            stream.write(b"changed")
        return reply

    receiver.fault("PATCH", Alter(touch))
    report = edge.round()
    assert [each.file for each in report.changed] == [path]
    assert edge.listed == [other]
    (end,) = receiver.manifests.values()
    assert [each.path for each in end.manifest] == [other]


def test_what_is_sent_is_the_snapshot_whatever_becomes_of_the_source(edge, receiver):
    path = edge.write(1, size=200_000)
    content = edge.content(path)

    def delete(reply: Reply) -> Reply:
        edge.remove(path)
        return reply

    receiver.fault("PATCH", Alter(delete))
    assert edge.round().sent == 1
    assert receiver.loaded[path] == content


# -- the load ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_slow_load_is_waited_for_and_never_raced(edge, receiver):
    edge.write(1)
    receiver.loading_polls = 5
    report = edge.round()
    assert (report.sent, report.exit_code) == (1, 0)
    assert receiver.count("POST /tasks/.*/end") == 1
    assert receiver.count("GET /tasks/") == 5
    assert receiver.count("POST /tasks/.*/batch") == 1


def test_a_load_slower_than_the_patience_is_picked_up_by_the_next_round(edge, receiver):
    edge.write(1)
    edge.with_settings(
        transfer=msgspec.structs.replace(edge.config.transfer, load_timeout=0.0, load_poll=0.0)
    )
    receiver.loading_polls = 3
    report = edge.round()
    assert report.exit_code == 4
    assert "next round asks" in report.error.message
    assert edge.listed == [], "received is not loaded"
    receiver.loading_polls = 0
    report = edge.round()
    assert (report.sent, report.bytes, report.exit_code) == (1, 0, 0)
    assert receiver.count("POST /tasks/.*/batch") == 1
    in_sync(edge, receiver)


def test_the_lost_answer_to_the_end_is_asked_for_by_id(edge, receiver):
    edge.write(1)
    receiver.fault("POST /tasks/.*/end", *(Drop(late=True) for _ in range(6)))
    assert edge.round().exit_code == 4
    report = edge.round()
    assert (report.sent, report.exit_code) == (1, 0)
    assert len(receiver.manifests) == 1
    in_sync(edge, receiver)


@pytest.mark.parametrize(
    ("result", "code", "kept"),
    [
        (Result.CONFLICT, 3, "conflicts"),
        (Result.REFUSED, 3, "refused"),
        (Result.MISSING, 3, "failed"),
        (Result.QUARANTINED, 3, "quarantined"),
        (Result.EXPIRED, 0, "expired"),
    ],
)
def test_only_what_the_outcome_calls_loaded_goes_on_the_list(edge, receiver, result, code, kept):
    bad, good = edge.write(1), edge.write(2)
    receiver.judge = lambda path: Outcome(path=path, result=result) if path == bad else None
    report = edge.round()
    assert (report.exit_code, report.sent) == (code, 1)
    assert [each.file for each in getattr(report, kept)] == [bad]
    assert edge.listed == [good]
    assert edge.leftovers == []


def test_an_expired_file_is_offered_once_and_holds_up_nothing(edge, receiver):
    old, young = edge.write(1), edge.write(2)
    receiver.decide = lambda entry: (
        wire.PlanDecision(path=old, action=Action.EXPIRED, reason="past the TTL")
        if entry.path == old
        else None
    )
    report = edge.round()
    assert ([each.file for each in report.expired], report.sent, report.exit_code) == ([old], 1, 0)
    assert (report.pending_files, report.pending_bytes) == (0, 0)
    offered = len(receiver.plans)
    for _ in range(2):
        report = edge.round()
        assert ([each.file for each in report.expired], report.exit_code) == ([old], 0)
    assert len(receiver.plans) == offered
    edge.remove(young)
    assert edge.round().deleted == 1  # of the same partition
    assert edge.listed == []


def test_a_deletion_goes_on_beside_a_file_that_expires_in_its_task(edge, receiver):
    gone = edge.write(1)
    edge.round()
    edge.remove(gone)
    old = edge.write(2)
    receiver.decide = lambda entry: wire.PlanDecision(path=old, action=Action.EXPIRED)
    report = edge.round()
    assert (report.deleted, report.held) == (1, [])


def test_another_engine_is_asked_again_for_a_file_that_expired(edge, receiver):
    old = edge.write(1)
    receiver.decide = lambda entry: wire.PlanDecision(path=old, action=Action.EXPIRED)
    edge.round()
    receiver.decide = lambda entry: None
    assert edge.round().sent == 0
    receiver.engine = "f" * 32
    receiver.epoch = None
    edge.round()
    edge.round()
    assert list(receiver.loaded) == [old]
    in_sync(edge, receiver)


def test_a_deletion_that_the_receiver_holds_stays_on_the_list(edge, receiver):
    path, other = edge.write(1), edge.write(2)
    edge.round()
    edge.remove(path)
    receiver.judge = lambda each: (
        Outcome(path=each, result=Result.HELD, reason="waits") if each == path else None
    )
    report = edge.round()
    assert [each.file for each in report.held] == [path]
    assert edge.listed == sorted([path, other])


# -- the receiver's past -------------------------------------------------------------------------


def test_files_that_are_wanted_again_are_sent_again(edge, receiver):
    path = edge.write(1)
    edge.round()
    md5 = edge.files[path]
    del receiver.loaded[path]
    receiver.wanted = [
        wire.Wanted(path=path, size=len(edge.content(path)), md5=md5, reason="found damaged")
    ]
    assert edge.round().sent == 1
    receiver.wanted = []
    in_sync(edge, receiver)
    assert edge.round().quiet


def test_after_a_rewound_history_deletions_wait_for_a_round(edge, receiver):
    path, lost = edge.write(1), edge.write(2)
    edge.round()
    edge.remove(path)
    receiver.history = History.REWOUND
    del receiver.loaded[lost]
    report = edge.round()
    assert (report.sent, report.deleted) == (1, 0)
    assert [each.file for each in report.held] == [path]
    receiver.history = None
    assert edge.round().deleted == 1
    in_sync(edge, receiver)


def test_the_epoch_of_each_answer_is_shown_at_the_next_start(edge, receiver):
    edge.write(1)
    edge.round()
    edge.write(2)
    edge.round()
    starts = [
        wire.decode(r.body, wire.StartRequest, "start")
        for r in receiver.requests
        if r.method == "PUT"
    ]
    assert starts[0].epoch is None
    assert starts[1].epoch.startswith("1.")
    checks = [
        wire.decode(r.body, wire.CheckRequest, "check")
        for r in receiver.requests
        if r.path == "/check"
    ]
    assert checks[1].last_task == wire.TaskMark(task=next(iter(receiver.tasks)), commit=101)


def test_a_lost_answer_to_the_start_is_no_clone(edge, receiver):
    edge.write(1)
    receiver.fault("PUT /tasks", Drop(late=True))
    assert edge.round().exit_code == 0
    in_sync(edge, receiver)


@pytest.mark.parametrize(
    ("where", "reply"),
    [
        ("POST /check", redirect("http://127.0.0.1:9/elsewhere")),
        ("POST /check", html(200)),
        ("POST /check", html(500)),
        ("POST /check", Reply(200, {"Content-Type": "application/json"}, b'{"a":')),
        ("POST /check", problem(CloneError, "two machines")),
        ("POST /check", problem(ForbiddenError, "not from here")),
        ("PUT /tasks", problem(CloneError, "two machines")),
        ("PUT /tasks", problem(GoneError, "another engine")),
        ("POST /tasks/.*/plan", html(502)),
        ("POST /tasks/.*/plan", redirect("http://127.0.0.1:9/")),
        ("POST /tasks/.*/end", problem(ConflictError, "odd")),
        ("GET /inventory", html(404)),
    ],
)
def test_whatever_a_receiver_answers_the_round_ends_with_a_message(edge, receiver, where, reply):
    edge.write(1)
    receiver.fault(where, *(Answer(reply) for _ in range(100)))
    report = edge.round()
    assert report.error is not None
    assert report.exit_code in (3, 4)
    assert edge.listed == []
    receiver.faults.clear()
    assert edge.round().exit_code == 0
    in_sync(edge, receiver)


def test_what_another_engine_has_listed_under_the_address_is_not_the_receivers(edge, receiver):
    path = edge.write(1)

    def change(reply: Reply) -> Reply:
        answer = wire.decode(reply.body, wire.InventoryAnswer, "inventory")
        md5, size = edge.files[path], len(edge.content(path))
        entry = wire.InventoryEntry(path=path, size=size, md5=md5, state="loaded")
        other = msgspec.structs.replace(answer, engine="f" * 32, entries=[entry])
        reply.body = wire.encode(other)
        return reply

    receiver.fault("GET /inventory", *[Alter(change)] * 7)
    report = edge.round()
    assert (report.exit_code, edge.listed) == (4, [])
    assert "ffff' answers" in report.error.message
    assert edge.round().sent == 1
    in_sync(edge, receiver)


def test_the_token_goes_to_the_receiver_only(tmp_path, receiver):
    from tests.support.scripted_receiver import ScriptedReceiver

    receiver.token = "hush"
    edge = Edge(tmp_path / "edge", receiver.url, token="hush")
    edge.write(1, size=500_000)
    with ScriptedReceiver() as elsewhere:

        def move(reply: Reply) -> Reply:
            path = reply.headers["Location"]
            reply.headers["Location"] = f"{elsewhere.url}{path}"
            return reply

        receiver.fault("POST /files", Alter(move))
        assert edge.round().exit_code == 0
        assert elsewhere.requests == []
    assert "hush" not in repr(edge.config.receivers[0].token)
    assert Secret("hush") == edge.config.receivers[0].token


def test_a_stop_ends_the_round_and_the_next_goes_on(edge, receiver):
    path = edge.write(1, size=500_000)

    def stop(reply: Reply) -> Reply:
        edge.stop.set()
        return reply

    receiver.fault("PATCH", Alter(lambda reply: reply), Alter(stop))
    report = edge.round()
    assert report.exit_code == 130
    assert edge.listed == []
    edge.stop.clear()
    report = edge.round()
    assert [(each.file, each.offset) for each in report.resumed] == [(path, 131_072)]
    in_sync(edge, receiver)


def test_a_stop_ends_the_wait_for_a_load(edge, receiver):
    edge.write(1)
    release = threading.Event()
    receiver.fault("GET /tasks", Stall(release))
    receiver.loading_polls = 1000
    done = []
    thread = threading.Thread(target=lambda: done.append(edge.round()))
    thread.start()
    wait_until(lambda: receiver.count("POST /tasks/.*/end") == 1)
    edge.stop.set()
    release.set()
    thread.join(60)
    assert done[0].exit_code == 130


def test_a_directory_without_its_marker_makes_nothing_gone(edge, receiver, tmp_path):
    from sender.select.data_dirs import mark

    second = tmp_path / "second"
    (second / "sequence").mkdir(parents=True)
    mark(second, edge.uuid)
    edge.with_settings(data_dirs=(edge.data, second), propagate_deletes="all")
    path = edge.write(1)
    edge.write(2)
    target = second / path
    target.parent.mkdir(parents=True)
    for suffix in ("", ".resource"):
        (edge.data / f"{path}{suffix}").rename(f"{target}{suffix}")
    edge.round()
    assert len(receiver.loaded) == 2
    (second / ".tsferry").unlink()
    target.unlink()
    report = edge.round()
    assert report.exit_code == 3
    assert [each.file for each in report.unmounted] == [str(second)]
    assert len(receiver.loaded) == 2


# -- files that wait for too long ------------------------------------------------------------------


def test_a_file_that_waits_for_longer_than_a_day_counts_in_the_exit_code(
    edge, receiver, monkeypatch
):
    edge.write(1)
    path = edge.write(2)
    (edge.data / f"{path}.resource").unlink()
    day = 86400.0
    now = time.time()
    for later, code in ((0.0, 0), (day - 60, 0), (day + 60, 3)):
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        report = edge.round()
        assert (report.exit_code, report.waiting) == (code, 1)
    (late,) = report.overdue
    assert (late.file, "24 hours: has no .resource" in late.reason) == (path, True)
    assert report.as_json()["overdue"][0]["file"] == path
    assert f"overdue: {path}" in as_text(report.as_json())


def test_a_file_that_waits_does_not_begin_anew_because_somebody_links_it(
    edge, receiver, monkeypatch, tmp_path
):
    now, day = time.time(), 86400.0
    receiver.looks = 0
    path = edge.write(1)
    (edge.data / f"{path}.resource").unlink()
    monkeypatch.setattr(time, "time", lambda: now - day - 60)
    os.utime(edge.data / path, (0, now - 2 * day))
    assert edge.round().exit_code == 0
    monkeypatch.setattr(time, "time", lambda: now)
    (tmp_path / "backup").hardlink_to(edge.data / path)  # which makes its ctime new
    assert [each.file for each in edge.round().overdue] == [path]
    os.utime(edge.data / path, (0, now - 60))  # it is still written
    assert not edge.round().overdue


def test_the_alarm_can_be_set_and_spares_what_is_filtered_out(receiver, tmp_path, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10 * 86400)
    for settings, code in (
        ({"wait_alarm": 3600}, 3),
        ({"wait_alarm": 0}, 0),
        ({"wait_alarm": 3600, "storage_groups": StorageGroupFilter(include=("root.none",))}, 0),
    ):
        edge = Edge(tmp_path / str(len(list(tmp_path.iterdir()))), receiver.url, **settings)
        path = edge.write(1)
        (edge.data / f"{path}.resource").unlink()
        assert edge.round().exit_code == code


# -- digests that are known ----------------------------------------------------------------------


def test_a_file_that_was_digested_before_is_offered_with_its_digest(edge, receiver):
    path = edge.write(1, size=200_000)
    (file,) = edge.files.items()
    edge.digests.note(edge.data, path, stat_identity((edge.data / path).stat()), file[1])
    edge.round()
    assert [each.md5 for each in receiver.plans] == [file[1]]
    in_sync(edge, receiver)


@pytest.mark.parametrize("size", [200_000, None])
def test_a_digest_that_proves_wrong_is_forgotten(edge, receiver, size):
    path = edge.write(1, size=size)
    edge.digests.note(edge.data, path, stat_identity((edge.data / path).stat()), "0" * 32)
    receiver.fault("PATCH", *(Alter(lambda r: r) for _ in range(3)), Answer(problem(DigestError)))
    report = edge.round()
    assert [each.file for each in report.failed] == [path]
    assert "not what they were" in report.failed[0].reason
    assert edge.round().sent == 1
    in_sync(edge, receiver)


def test_what_the_only_receiver_was_sent_is_not_kept_in_memory(edge, receiver):
    edge.write(1, size=200_000)
    edge.round()
    assert edge.digests._known == {}


def test_what_one_receiver_was_sent_is_known_for_the_next(edge, receiver):
    path = edge.write(1, size=200_000)
    (entry,) = edge.config.receivers
    edge.with_settings(receivers=(entry, msgspec.structs.replace(entry, name="dc2")))
    edge.round()
    found = stat_identity((edge.data / path).stat())
    assert edge.digests._known == {(edge.data, path): (found, edge.files[path])}


def test_an_interrupt_while_it_waits_for_its_threads_is_not_lost(edge, receiver, monkeypatch):
    """The round ends early by an error, and what it waits for then is cut off."""

    def run(sending, jobs):
        try:
            yield []
        finally:
            raise KeyboardInterrupt

    def fail(name):
        if name == "task.file.recorded":
            raise SimulatedCrash(name)

    monkeypatch.setattr(Sending, "run", run)
    edge.write(1)
    with crash.arm(fail), pytest.raises(KeyboardInterrupt):
        edge.round()
