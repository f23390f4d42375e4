from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sender.kept import identity
from sender.kept.troubles import Trouble, TroubleKind, Troubles, expired_paths
from sender.select.found import LocalFile, Scan, Unmounted
from tests.support.site import ENDPOINT, path

A, B = path("1-1-0.tsfile"), path("2-1-0.tsfile")
D0 = Path("/d0")


def a_file(at=A, size=10, mtime_ns=1):
    return LocalFile(at, D0, "", size, mtime_ns, 1)


def a_trouble(kind=TroubleKind.CONFLICT, **more):
    return Trouble(path="", size=0, mtime_ns=0, kind=kind, reason="why", **more)


def said(troubles, trouble, at=A):
    """An answer to all that the operator has said so far."""
    return msgspec.structs.replace(trouble, words=troubles.by_path[at].words)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def reopen(tmp_path, clock):
    with identity.open_sync_dir(tmp_path) as sync:
        yield lambda: Troubles.open(sync, ENDPOINT, clock=clock)


def test_a_trouble_is_still_there_after_a_restart(reopen):
    reopen().record([(a_file(), a_trouble(device="root.a.d1"))])
    (found,) = reopen()
    assert (found.path, found.size, found.device, found.since) == (A.text, 10, "root.a.d1", 100.0)


def test_the_same_trouble_again_keeps_its_first_time_and_counts(reopen, clock):
    troubles = reopen()
    troubles.record([(a_file(), a_trouble())])
    clock.now = 200.0
    troubles.record([(a_file(), a_trouble())])
    (found,) = reopen()
    assert (found.since, found.rounds) == (100.0, 2)
    troubles.record([(a_file(size=11), a_trouble())])
    (found,) = reopen()
    assert (found.since, found.rounds) == (200.0, 1)


@pytest.mark.parametrize(
    ("files", "ends"),
    [
        ({A: a_file()}, False),
        ({A: a_file(size=11)}, True),
        ({A: a_file(mtime_ns=2)}, True),
        ({}, True),
    ],
)
def test_other_content_or_the_end_of_the_file_ends_a_trouble(reopen, files, ends):
    troubles = reopen()
    troubles.record([(a_file(), a_trouble(TroubleKind.QUARANTINED, hold=True))])
    ended = troubles.prune(Scan(files, mounted=(D0,)))
    assert bool(ended) is ends
    assert bool(list(reopen())) is not ends


@pytest.mark.parametrize(
    "scan",
    [
        Scan({}, mounted=(D0,), others=frozenset({A})),
        Scan({}, mounted=(), unmounted=(Unmounted(D0, "away"),)),
        Scan({}, mounted=(D0,), includes=lambda sg: False),
    ],
)
def test_a_file_that_cannot_be_looked_at_keeps_its_trouble(reopen, scan):
    troubles = reopen()
    troubles.record([(a_file(), a_trouble())])
    assert troubles.prune(scan) == []
    assert len(reopen()) == 1


def test_hold_keeps_back_until_the_operator_says_so(reopen):
    troubles = reopen()
    troubles.record([(a_file(), a_trouble(TroubleKind.QUARANTINED, hold=True))])
    assert troubles.by_path[A].keeps_back
    assert troubles.retry(A)[0].retry
    again = reopen().by_path[A]
    assert not again.keeps_back
    held = a_trouble(TroubleKind.QUARANTINED, hold=True)
    troubles.record([(a_file(), said(troubles, held))])
    assert reopen().by_path[A].keeps_back


def test_all_may_be_retried_but_not_what_was_given_up(reopen):
    troubles = reopen()
    troubles.record([(a_file(A), a_trouble(hold=True)), (a_file(B), a_trouble(hold=True))])
    troubles.drop(A)
    assert [each.path for each in troubles.retry()] == [B.text]
    assert [each.path for each in reopen()] == [B.text]
    assert reopen().by_path[A].keeps_back
    assert not reopen().by_path[A].blocks
    troubles.retry(A)
    assert not reopen().by_path[A].keeps_back


def test_what_an_operator_deleted_is_retried_only_if_it_is_named(reopen):
    troubles = reopen()
    deleted = a_trouble(TroubleKind.EXPIRED, hold=True)
    past = a_trouble(TroubleKind.EXPIRED)
    troubles.record([(a_file(), deleted), (a_file(B), past)])
    assert (deleted.keeps_back, deleted.blocks) == (True, False)
    assert [each.path for each in troubles.retry()] == [B.text]
    assert [each.path for each in troubles.retry_deleted()] == [A.text]
    assert not any(each.keeps_back for each in reopen())
    troubles.record([(a_file(), said(troubles, deleted))])
    assert [each.path for each in troubles.retry(A)] == [A.text]


@pytest.mark.parametrize("kind", [TroubleKind.FAILED, TroubleKind.REFUSED, TroubleKind.CONFLICT])
def test_a_try_that_was_cut_off_is_made_again_with_the_operators_word(reopen, kind):
    deleted = a_trouble(TroubleKind.EXPIRED, hold=True)
    troubles = reopen()
    troubles.record([(a_file(), deleted)])
    troubles.retry_deleted()
    troubles.record([(a_file(), a_trouble(kind))])
    (found,) = reopen()
    assert (found.kind, found.retry, found.keeps_back) == (kind, True, False)
    troubles.record([(a_file(), said(troubles, deleted))])  # a verdict ends it
    (found,) = reopen()
    assert (found.retry, found.keeps_back) == (False, True)
    troubles.retry_deleted()
    troubles.record([(a_file(size=11), a_trouble(kind))])  # it was said of other content
    (found,) = reopen()
    assert not found.retry


@pytest.mark.parametrize("kind", [TroubleKind.EXPIRED, TroubleKind.QUARANTINED])
def test_what_is_said_while_an_answer_is_on_its_way_holds(reopen, kind):
    troubles = reopen()
    held = a_trouble(kind, hold=True)
    troubles.record([(a_file(), held)])
    troubles.retry(A)
    answer = said(troubles, held)
    reopen().drop(A)
    reopen().retry(A)
    troubles = reopen()
    troubles.record([(a_file(), answer)])
    (found,) = reopen()
    assert (found.retry, found.keeps_back) == (True, False)
    troubles.record([(a_file(), said(troubles, held))])
    assert reopen().by_path[A].keeps_back


def test_what_the_operator_said_holds_for_another_receiver_too(reopen):
    troubles = reopen()
    expired = a_trouble(TroubleKind.EXPIRED, hold=True)
    troubles.record([(a_file(A), expired), (a_file(B), expired)])
    troubles.retry(A)
    troubles.drop(B)
    troubles.forget_expired()
    assert (reopen().by_path[A].retry, reopen().by_path[B].dropped) == (True, True)


def test_an_unknown_path_changes_nothing(reopen):
    assert reopen().retry(A) == []
    assert reopen().drop(A) == []


def test_a_loaded_file_has_no_trouble(reopen):
    troubles = reopen()
    troubles.record([(a_file(A), a_trouble()), (a_file(B), a_trouble())])
    troubles.clear([A])
    assert [each.path for each in reopen()] == [B.text]


def test_an_expired_file_blocks_nothing(reopen):
    troubles = reopen()
    troubles.record([(a_file(), a_trouble(TroubleKind.EXPIRED))])
    assert not troubles.by_path[A].blocks


def test_an_expired_file_is_not_offered_again_until_somebody_says_so(reopen):
    troubles = reopen()
    troubles.record([(a_file(A), a_trouble(TroubleKind.EXPIRED)), (a_file(B), a_trouble())])
    assert troubles.by_path[A].keeps_back
    assert expired_paths(troubles.by_path, Scan({A: a_file(A), B: a_file(B)})) == {A}
    assert not expired_paths(troubles.by_path, Scan({A: a_file(A, size=11), B: a_file(B)}))
    troubles.retry(A)
    assert not troubles.by_path[A].keeps_back


def test_another_receiver_is_asked_again_for_what_expired(reopen):
    troubles = reopen()
    troubles.record([(a_file(A), a_trouble(TroubleKind.EXPIRED)), (a_file(B), a_trouble())])
    troubles.forget_expired()
    assert [each.path for each in reopen()] == [B.text]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 80,
        b'{"version":9,"troubles":[]}',
        b'{"version":1,"troubles":[{"path":"../x","size":1,"mtime_ns":1,"kind":"conflict"}]}',
    ],
)
def test_a_damaged_list_does_not_keep_the_sender_from_starting(reopen, tmp_path, content):
    reopen().record([(a_file(), a_trouble())])
    (tmp_path / "sync" / ENDPOINT / "troubles.json").write_bytes(content)
    troubles = reopen()
    assert len(troubles) == 0
    assert "troubles.json" in troubles.problem
    troubles.record([(a_file(), a_trouble())])
    assert reopen().problem is None
