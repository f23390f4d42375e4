from __future__ import annotations

import msgspec
import pytest

from common.errors import BusyError, UnreachableError
from common.wire import Outcome, Result, TaskAnswer, TaskState
from sender.round.recovery import RecoveryReport, recover
from tests.support.site import Site, digest, done, path, rebuild, tsfile

A, B, C = path("1-1-0.tsfile"), path("2-1-0.tsfile"), path("3-1-0.tsfile")
TASK = "0123456789abcdef" * 2


class Receiver:
    """Answers for tasks, and counts the questions."""

    def __init__(self, *answers, down=False):
        self.answers = {each.task: each for each in answers}
        self.down = down
        self.asked = []

    def __call__(self, task):
        self.asked.append(task)
        if self.down:
            raise UnreachableError("no answer")
        return self.answers.get(task)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path, dirs=2)


def sent(site, ledger, paths, *, deleted=(), task=TASK):
    """Everything that a task does up to its end, and then nothing more."""
    scan = site.scan(ledger.entries)
    files = [scan.files[each] for each in paths]
    homes = {each.path: each.data_dir for each in files}
    homes |= {each: ledger.entries[each].data_dir for each in deleted}
    logs = site.logs()
    logs.begin(task, homes)
    site.snapshot().take(files)
    logs.deleted(deleted)
    logs.files(paths)
    ledger.sent(site.entry(each) for each in files)
    logs.end()
    logs.close()


def recovered(site, receiver):
    return recover(site.ledger(), site.logs(), site.snapshot(), site.dirs, receiver)


def begun(site):
    ledger = site.ledger()
    rebuild(ledger, (), {})
    return ledger


def test_with_nothing_to_recover_nobody_is_asked(site):
    begun(site)
    receiver = Receiver(down=True)
    assert recovered(site, receiver) == RecoveryReport({})
    assert receiver.asked == []


def test_what_the_outcome_calls_loaded_goes_on_the_list_and_its_link_is_dropped(site):
    site.put(A)
    site.put(B, data_dir=1)
    sent(site, begun(site), [A, B])
    receiver = Receiver(done(TASK, {A: Result.LOADED, B: Result.ALREADY}))
    report = recovered(site, receiver)
    assert set(report.added) == {A, B}
    assert report.tasks == {TASK: True}
    ledger = site.ledger()
    assert set(ledger.entries) == {A, B}
    assert ledger.entries[A].md5 == digest(tsfile())
    assert ledger.entries[B].data_dir == site.data_dirs[1]
    assert site.snapshot().leftovers() == []
    assert recovered(site, Receiver(down=True)) == RecoveryReport({})


def test_received_is_not_loaded(site):
    """All was sent and recorded, but the receiver committed nothing."""
    site.put(A)
    sent(site, begun(site), [A])
    report = recovered(site, Receiver())
    assert report.tasks == {TASK: False}
    assert site.ledger().entries == {}
    assert site.logs().left_over() == {}
    assert site.plan(site.ledger()).files == 1


def test_only_what_was_loaded_goes_on_the_list(site):
    for each in (A, B, C):
        site.put(each)
    sent(site, begun(site), [A, B, C])
    outcomes = {A: Result.LOADED, B: Result.CONFLICT, C: Result.MISSING}
    recovered(site, Receiver(done(TASK, outcomes)))
    assert set(site.ledger().entries) == {A}


@pytest.mark.parametrize("state", [TaskState.OPEN, TaskState.LOADING, None])
def test_what_is_not_committed_folds_nothing(site, state):
    site.put(A)
    sent(site, begun(site), [A])
    if state is TaskState.LOADING:
        busy = Receiver(TaskAnswer(task=TASK, state=state))
        with pytest.raises(BusyError):
            recovered(site, busy)
        assert set(site.logs().left_over()) == {site.data_dirs[0]}
    else:
        recovered(site, Receiver(*([TaskAnswer(task=TASK, state=state)] if state else [])))
        assert site.logs().left_over() == {}
    assert site.ledger().entries == {}


def test_with_the_receiver_out_of_reach_nothing_is_changed(site):
    site.put(A)
    site.put(B, data_dir=1)
    sent(site, begun(site), [A, B])
    before = {each: each.stat().st_mtime_ns for each in site.root.rglob("*")}
    with pytest.raises(UnreachableError):
        recover(site.ledger(), site.logs(), site.snapshot(), site.dirs, Receiver(down=True))
    assert {each: each.stat().st_mtime_ns for each in site.root.rglob("*")} == before


@pytest.mark.parametrize("result", [Result.DELETED, Result.RETIRED])
def test_what_was_deleted_or_retired_leaves_the_list(site, result):
    site.put(A)
    site.put(B)
    ledger = site.load_all()
    site.remove(A)
    sent(site, ledger, [], deleted=[A])
    report = recovered(site, Receiver(done(TASK, {A: result})))
    assert report.removed == (A,)
    assert set(site.ledger().entries) == {B}


def test_a_deletion_that_was_held_stays_on_the_list(site):
    site.put(A)
    ledger = site.load_all()
    site.remove(A)
    sent(site, ledger, [], deleted=[A])
    recovered(site, Receiver(done(TASK, {A: Result.HELD})))
    assert set(site.ledger().entries) == {A}


@pytest.mark.parametrize("order", [1, -1])
def test_a_replaced_file_is_listed_with_its_new_content(site, order):
    site.put(A)
    ledger = site.load_all()
    site.put(A, tsfile(value=5))
    sent(site, ledger, [A], deleted=[A])
    both = [
        Outcome(path=A.text, result=Result.DELETED),
        Outcome(path=A.text, result=Result.LOADED),
    ][::order]
    answer = TaskAnswer(task=TASK, state=TaskState.DONE, commit=1, outcomes=both)
    recovered(site, Receiver(answer))
    assert site.ledger().entries[A].md5 == digest(tsfile(value=5))


def test_folding_a_replacement_again_does_not_delete_it(site):
    """A crash after the fold, before the log was removed."""
    site.put(A)
    ledger = site.load_all()
    site.put(A, tsfile(value=5))
    sent(site, ledger, [A], deleted=[A])
    log = (site.sender_dir() / "sync.log").read_bytes()
    both = [
        Outcome(path=A.text, result=Result.DELETED),
        Outcome(path=A.text, result=Result.LOADED),
    ]
    answer = TaskAnswer(task=TASK, state=TaskState.DONE, commit=1, outcomes=both)
    for _ in range(2):
        (site.sender_dir() / "sync.log").write_bytes(log)
        recovered(site, Receiver(answer))
        assert site.ledger().entries[A].md5 == digest(tsfile(value=5))


def test_an_open_task_folds_nothing_whatever_it_claims(site):
    site.put(A)
    sent(site, begun(site), [A])
    claims = [Outcome(path=A.text, result=Result.LOADED)]
    answer = TaskAnswer(task=TASK, state=TaskState.OPEN, outcomes=claims)
    assert recovered(site, Receiver(answer)).tasks == {TASK: False}
    assert site.ledger().entries == {}


def test_a_replacement_that_failed_leaves_the_old_content_listed(site):
    site.put(A)
    ledger = site.load_all()
    site.put(A, tsfile(value=5))
    sent(site, ledger, [A], deleted=[A])
    recovered(site, Receiver(done(TASK, {A: Result.CONFLICT})))
    assert site.ledger().entries[A].md5 == digest(tsfile())


def test_a_file_that_changed_after_it_was_sent_is_not_taken_for_what_was_loaded(site):
    """The outcome speaks of the content that was sent, not of what stands there now."""
    where = site.put(A)
    sent(site, begun(site), [A])
    changed = tsfile(value=5)
    with where.open("r+b") as out:  # in place: the link sees it too
        out.write(changed)
    recovered(site, Receiver(done(TASK, {A: Result.LOADED})))
    ledger = site.ledger()
    assert ledger.entries[A].md5 == digest(tsfile())
    (task,) = site.plan(ledger).tasks
    assert task.additions[0].replaces


def test_a_link_whose_source_is_still_there_is_dropped(site):
    site.put(A)
    sent(site, begun(site), [A])
    report = recovered(site, Receiver())
    assert report.dropped == (A,)
    assert site.snapshot().leftovers() == []


def test_the_last_copy_of_an_unloaded_file_is_kept_and_sent(site):
    site.put(A)
    sent(site, begun(site), [A])
    site.remove(A)
    for _ in range(3):  # however often one starts before it is loaded
        report = recovered(site, Receiver())
        assert [each.path for each in report.last_copies] == [A]
    scan = site.scan().with_last_copies(report.last_copies)
    taken = site.snapshot().take(scan.files.values())
    assert [each.path for each in taken.files] == [A]
    assert taken.dropped == ()


def test_a_last_copy_stays_when_a_link_of_its_path_in_another_data_directory_goes(site):
    """The first content is loaded; the database wrote another one elsewhere, and removed both."""
    site.put(A)
    sent(site, begun(site), [A])
    site.remove(A)
    unloaded = tsfile(last=250)
    site.put(A, unloaded, data_dir=1)
    site.snapshot().take([site.scan().files[A]])
    site.remove(A, data_dir=1)
    assert [each.data_dir for each in site.snapshot().leftovers()] == list(site.data_dirs)
    receiver = Receiver(done(TASK, {A: Result.LOADED}))
    for _ in range(2):
        (last,) = recovered(site, receiver).last_copies
        assert last.data_dir == site.data_dirs[1]
    assert (last.data_dir / last.rel).read_bytes() == unloaded
    assert site.snapshot().leftovers() == [last]


@pytest.mark.parametrize("content", [b"", bytes(500), tsfile()[:-7]])
def test_a_last_copy_that_no_receiver_could_load_keeps_nothing_waiting(site, content):
    """As a power cut leaves one whose database never flushed it; the database then removes it."""
    site.put(A)
    site.put(B)
    ledger = begun(site)
    sent(site, ledger, [B])
    recovered(site, Receiver(done(TASK, {B: Result.LOADED})))
    sent(site, site.ledger(), [A], task="f" * 32)
    site.place(A).write_bytes(content)  # through the link
    site.remove(A)
    site.remove(B)
    report = recovered(site, Receiver())
    assert report.last_copies == ()
    assert report.dropped == (A,)
    assert site.snapshot().leftovers() == []
    (task,) = site.plan(site.ledger()).tasks
    assert [each.path for each in task.deletions] == [B]


def test_a_last_copy_that_is_loaded_then_is_dropped_and_later_gone(site):
    site.put(A)
    ledger = begun(site)
    sent(site, ledger, [A])
    site.remove(A)
    report = recovered(site, Receiver(done(TASK, {A: Result.LOADED})))
    assert report.last_copies == ()
    assert site.snapshot().leftovers() == []
    (task,) = site.plan(site.ledger()).tasks
    assert [each.path for each in task.deletions] == [A]


def test_a_copy_is_known_by_its_content_as_loaded(site, monkeypatch):
    from common.durable import Tree

    def refuse(self, source, target, *, sync=True):
        raise OSError(18, "cross-device")

    monkeypatch.setattr(Tree, "link", refuse)
    site.put(A)
    sent(site, begun(site), [A])
    site.remove(A)
    report = recovered(site, Receiver(done(TASK, {A: Result.LOADED})))
    assert report.last_copies == ()


def test_the_progress_of_every_directory_counts_not_only_of_the_first(site):
    """A crash after the first log was removed: the other still names the task."""
    site.put(A)
    site.put(B, data_dir=1)
    sent(site, begun(site), [A, B])
    (site.sender_dir(0) / "sync.log").unlink()
    recovered(site, Receiver(done(TASK, {A: Result.LOADED, B: Result.LOADED})))
    assert set(site.ledger().entries) == {A, B}


def test_logs_of_two_tasks_are_both_asked_for(site):
    site.put(A)
    site.put(B, data_dir=1)
    ledger = begun(site)
    sent(site, ledger, [A, B])
    other = "f" * 32
    log = site.sender_dir(1) / "sync.log"
    log.write_text(log.read_text().replace(TASK, other))
    receiver = Receiver(done(TASK, {A: Result.LOADED}), done(other, {B: Result.LOADED}))
    recovered(site, receiver)
    assert set(receiver.asked) == {TASK, other}
    assert set(site.ledger().entries) == {A, B}


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"garbage\n", b"sync start ../../x\n"])
def test_a_damaged_sync_log_neither_stops_the_start_nor_folds_anything(site, content):
    site.put(A)
    sent(site, begun(site), [A])
    (site.sender_dir() / "sync.log").write_bytes(content)
    receiver = Receiver(done(TASK, {A: Result.LOADED}))
    recovered(site, receiver)
    assert receiver.asked == []
    assert site.ledger().entries == {}
    assert site.logs().left_over() == {}


def test_outcomes_of_paths_that_were_never_sent_are_ignored(site):
    site.put(B)
    sent(site, begun(site), [B])
    answer = done(TASK, {A: Result.LOADED, B: Result.DELETED})
    strange = Outcome(path="../../etc/passwd", result=Result.LOADED)
    answer = msgspec.structs.replace(answer, outcomes=[*answer.outcomes, strange])
    report = recovered(site, Receiver(answer))
    assert (report.added, report.removed) == ((), ())
    assert site.ledger().entries == {}


def test_a_log_of_another_task_is_never_continued(site):
    site.put(A)
    sent(site, begun(site), [A])
    with pytest.raises(BusyError):
        site.logs().begin("f" * 32, {A: site.data_dirs[0]})
