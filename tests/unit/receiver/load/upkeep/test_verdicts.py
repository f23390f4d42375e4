"""Verdicts of a verification: when they count, what they change, and that twice is once."""

from __future__ import annotations

import hashlib

import pytest

from common import crash, wire
from common.errors import TooLargeError
from receiver.load.upkeep.verdicts import (
    LONGEST_REASON,
    MOST_VERDICTS,
    Recorded,
    Verdict,
    record_verdicts,
)
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from receiver.operator.edges.senders import list_running_senders
from receiver.operator.status import running_status
from receiver.operator.stored.files import list_files
from receiver.operator.stored.quarantine import drop_quarantined, list_quarantine, retry_quarantined
from tests.support.node_world import A, B, Edge, path_of, plan_entry, results, tsfile

FILES = {path_of(1): tsfile(), path_of(2): tsfile(first=100), path_of(3): tsfile(first=200)}


@pytest.fixture
def edge(node):
    edge = Edge(node)
    edge.round(FILES)
    return edge


def views(node, state="live", **more):
    return {each.path: each for each in list_files(node.operator, state=state, **more).files}


def verdicts(node, **bad):
    """One on each live file; `bad` maps f<number> to a reason."""
    reasons = {path_of(int(key[1:])): why for key, why in bad.items()}
    return [
        Verdict(each.physical, each.md5, reasons.get(path)) for path, each in views(node).items()
    ]


def test_a_proved_file_is_verified_and_a_bad_one_is_hidden_and_wanted_again(node, edge):
    assert record_verdicts(node.engine, verdicts(node, f2="page 3: sum differs")) == (2, 1, 0)
    found = views(node)
    assert {path: bool(each.verified) for path, each in found.items()} == {
        path_of(1): True,
        path_of(3): True,
    }
    assert node.engine.newest_commit == found[path_of(1)].verified
    (bad,) = views(node, "quarantined").values()
    assert (bad.path, bad.reason, bad.verified) == (path_of(2), "page 3: sum differs", 0)
    (entry,) = list_quarantine(node.engine)
    assert (entry.reason, entry.loaded) == ("page 3: sum differs", True)
    (wanted,) = edge.check().wanted
    assert (wanted.path, wanted.reason) == (path_of(2), "page 3: sum differs")
    assert set(results(edge.round({path_of(2): FILES[path_of(2)]})).values()) == {"loaded"}
    assert edge.check().wanted == []
    assert views(node)[path_of(2)].verified == 0  # it is another file, and nobody has looked yet


def test_numbers_say_how_much_is_proved(node, edge):
    Edge(node, B).round({path_of(9): tsfile("root.sg.b1")})
    assert running_status(node.operator, node.problem()).oldest_verification == 0
    left_out = hashlib.md5(FILES[path_of(2)]).hexdigest()
    first = [each for each in verdicts(node) if each.md5 != left_out]
    record_verdicts(node.engine, first[:1])
    before = node.engine.newest_commit
    record_verdicts(node.engine, first[1:])
    status = running_status(node.operator, node.problem())
    assert (status.files, status.verified, status.unverified) == (4, 3, 1)
    assert status.oldest_verification == before
    assert {each.uuid: each.verified for each in list_running_senders(node.operator)} == {
        A: 2,
        B: 1,
    }
    assert set(views(node, unverified=True)) == {path_of(2)}
    assert edge.check().verified == wire.VerifiedFiles(files=3, verified=2)
    inventory = node.listing.inventory(edge.who, A, None, 10).entries
    assert {each.path: bool(each.verified) for each in inventory} == {
        path_of(1): True,
        path_of(2): False,
        path_of(3): True,
    }
    edge.round({}, [path_of(1)], propagate=wire.Propagate.ALL)
    edge.round({}, [path_of(3)], propagate=wire.Propagate.NEVER)  # retired: still there
    status = running_status(node.operator, node.problem())
    assert (status.files, status.verified, status.unverified) == (3, 2, 1)


def test_the_same_verdicts_twice_lead_to_the_same_state(node, edge):
    found = verdicts(node, f2="bad")
    first = record_verdicts(node.engine, found)
    before = {path: each.verified for path, each in views(node).items()}
    assert record_verdicts(node.engine, found) == first
    after = views(node)
    assert set(after) == set(before)
    assert all(after[path].verified > when for path, when in before.items())  # looked at again
    (bad,) = views(node, "quarantined").values()
    assert bad.reason == "bad"


def test_a_verdict_counts_only_for_the_file_that_was_judged(node, edge):
    one, two, three = verdicts(node)
    edge.round({}, [path_of(2)], propagate=wire.Propagate.ALL)
    record_verdicts(node.engine, [three._replace(bad="bad")])
    before = node.engine.newest_commit
    late = [
        one._replace(md5="0" * 32),
        one._replace(md5="0" * 32, bad="bad"),
        Verdict("sequence/root.sg/0/0/9-9-9.tsfile", one.md5),
        two,  # deleted meanwhile
        two._replace(bad="bad"),
        three,  # in quarantine: only its operator or another content lets it out
    ]
    assert record_verdicts(node.engine, late) == Recorded(0, 0, 4)  # one of each file
    assert node.engine.newest_commit == before
    assert not any(each.verified for each in views(node).values())


def test_of_two_verdicts_on_one_file_the_bad_one_counts(node, edge):
    one, *_ = verdicts(node)
    bad = one._replace(bad="bad")
    assert record_verdicts(node.engine, [bad, one]) == (0, 1, 0)


def test_a_reason_is_never_empty_and_never_a_page_long(node, edge):
    one, two, _ = verdicts(node)
    record_verdicts(node.engine, [one._replace(bad=" "), two._replace(bad="x" * 10_000)])
    reasons = [str(each.reason) for each in views(node, "quarantined").values()]
    assert reasons[0]
    assert all(len(each) <= LONGEST_REASON for each in reasons)


def test_too_many_verdicts_are_refused_as_a_whole(node, edge):
    one, *_ = verdicts(node)
    with pytest.raises(TooLargeError, match="10000"):
        record_verdicts(node.engine, [one] * (MOST_VERDICTS + 1))
    assert record_verdicts(node.engine, []) == (0, 0, 0)


def test_a_file_that_goes_while_verdicts_are_decided_makes_its_verdict_stale(node, edge):
    found = verdicts(node)
    once = [records.FileDeleted(found[1].physical, "operator")]

    def overtake(point):
        if point == "verdicts.decided" and once:
            node.engine.commit([once.pop()])

    with crash.arm(overtake):
        assert record_verdicts(node.engine, found) == (2, 0, 1)


def test_verdicts_that_are_overtaken_all_the_time_say_so(node, edge, monkeypatch):
    found = verdicts(node)

    def refuse(*_):
        raise RefusedCommitError("overtaken")

    monkeypatch.setattr(node.engine, "commit", refuse)
    with pytest.raises(GuardFailed, match="again in a moment"):
        record_verdicts(node.engine, found)


def test_a_file_found_good_after_all_is_to_be_verified_again(node, edge):
    record_verdicts(node.engine, verdicts(node))
    record_verdicts(node.engine, verdicts(node, f1="bad"))
    (bad,) = views(node, "quarantined").values()
    assert "good" in retry_quarantined(node.operator, A, bad.path, bad.physical)
    assert views(node)[path_of(1)].verified == 0
    assert running_status(node.operator, node.problem()).verified == 2


def test_verdicts_survive_a_restart_and_a_checkpoint(world):
    with world.node() as node:
        Edge(node).round(FILES)
        record_verdicts(node.engine, verdicts(node, f2="bad"))
        before = {path: each.verified for path, each in views(node).items()}
    with world.node() as node:
        assert {path: each.verified for path, each in views(node).items()} == before
        node.engine.checkpoint()
    with world.node() as node:
        assert {path: each.verified for path, each in views(node).items()} == before
        assert running_status(node.operator, node.problem()).verified == 2


@pytest.mark.parametrize("point", ["verdicts.decided", "verdicts.committed"])
def test_after_a_death_the_same_verdicts_are_delivered_again(world, point):
    with world.node() as node:
        Edge(node).round(FILES)
        found = verdicts(node, f3="bad")

        def die(here):
            if here == point:
                raise crash.SimulatedCrash(here)

        with crash.arm(die), pytest.raises(crash.SimulatedCrash):
            record_verdicts(node.engine, found)
    with world.node() as node:
        assert running_status(node.operator, node.problem()).verified == (
            2 if point == "verdicts.committed" else 0
        )
        assert record_verdicts(node.engine, found) == (2, 1, 0)
        assert running_status(node.operator, node.problem()).verified == 2


# -- bad at its source ---------------------------------------------------------------------------

WHY = "pages: its sum differs"


def hold(node, number=2):
    """A verdict on one file: bad, with the bytes that were sent."""
    (found,) = (each for each in verdicts(node, **{f"f{number}": WHY}) if each.bad)
    return found._replace(as_sent=True)


def planned(edge, content, **more):
    """The plan's answer, without any byte sent."""
    (decision,) = edge.plan(edge.start(), [plan_entry(path_of(2), content, **more)])
    return decision


def test_a_file_that_is_bad_as_it_was_sent_is_held_and_not_wanted_again(node, edge):
    found = hold(node)
    assert record_verdicts(node.engine, [found]) == (0, 1, 0)
    check = edge.check()
    assert check.wanted == []
    assert [(each.path, each.md5, each.reason) for each in check.held] == [
        (path_of(2), found.md5, WHY)
    ]
    assert not node.checks.heartbeat(edge.who, A, wire.Heartbeat(version="1")).wanted
    decision = planned(edge, FILES[path_of(2)])
    assert (decision.action, decision.hold, decision.reason) == (wire.Action.REFUSED, True, WHY)
    (entry,) = list_quarantine(node.engine)
    assert (entry.digest, entry.reason, entry.hold, entry.loaded) == (
        found.physical,
        WHY,
        True,
        True,
    )
    assert running_status(node.operator, node.problem()).quarantined == 1
    assert [each.quarantined for each in list_running_senders(node.operator)] == [1]
    assert record_verdicts(node.engine, [found]) == (0, 1, 0)  # twice is once
    assert len(list_quarantine(node.engine)) == 1


def test_other_content_at_the_path_ends_the_hold(node, edge):
    record_verdicts(node.engine, [hold(node)])
    other = tsfile(first=100, salt=1)
    assert planned(edge, other).action is wire.Action.SEND
    assert results(edge.round({path_of(2): other})) == {path_of(2): "loaded"}
    (lost,) = list_quarantine(node.engine)  # its points may be nowhere else
    assert not lost.hold
    assert edge.check().held == []
    assert set(views(node)) == set(FILES)


def test_the_end_of_a_held_file_at_the_edge_ends_the_hold(node, edge):
    record_verdicts(node.engine, [hold(node)])
    edge.round({}, [path_of(2)], propagate=wire.Propagate.ALL)
    assert list_quarantine(node.engine) == []
    assert edge.check().held == []


def test_the_sender_may_send_a_held_file_again_if_its_operator_says_so(node, edge):
    record_verdicts(node.engine, [hold(node)])
    files = {path_of(2): FILES[path_of(2)]}
    task = edge.start()
    (decision,) = edge.plan(task, [plan_entry(path_of(2), files[path_of(2)], retry=True)])
    assert decision.action is wire.Action.SEND
    edge.batch(task, files)
    edge.end(task, files)
    assert results(edge.outcome(task)) == {path_of(2): "loaded"}
    assert list_quarantine(node.engine) == []
    assert record_verdicts(node.engine, [hold(node)]) == (0, 1, 0)  # found once more, held again
    assert edge.check().wanted == []


def test_the_operator_may_show_a_held_file_and_is_told_what_was_found(node, edge):
    found = hold(node)
    record_verdicts(node.engine, [found])
    said = retry_quarantined(node.operator, A, path_of(2), found.physical)
    assert "visible again" in said
    assert WHY in said
    assert views(node)[path_of(2)].verified == 0
    assert list_quarantine(node.engine) == []
    assert edge.check().held == []
    assert planned(edge, FILES[path_of(2)]).action is wire.Action.ALREADY
    assert record_verdicts(node.engine, [found]) == (0, 1, 0)


def test_a_held_file_that_rots_meanwhile_is_wanted_after_a_retry(world, node, edge):
    found = hold(node)
    record_verdicts(node.engine, [found])
    lost = world.data / found.physical
    content = lost.read_bytes()
    lost.write_bytes(content[:20] + b"\0\0\0\0" + content[24:])
    assert "on hold no more" in retry_quarantined(node.operator, A, path_of(2), found.physical)
    assert [each.path for each in edge.check().wanted] == [path_of(2)]
    assert planned(edge, FILES[path_of(2)]).action is wire.Action.SEND


def test_a_dropped_hold_is_gone_with_its_file(node, edge):
    found = hold(node)
    record_verdicts(node.engine, [found])
    drop_quarantined(node.operator, A, path_of(2), found.physical)
    assert list_quarantine(node.engine) == []
    assert (edge.check().wanted, edge.check().held) == ([], [])
    (gone,) = views(node, "deleted").values()
    assert gone.path == path_of(2)
    assert planned(edge, FILES[path_of(2)]).action is wire.Action.EXPIRED  # an operator's word
    assert planned(edge, FILES[path_of(2)], retry=True).action is wire.Action.SEND


def test_a_held_file_that_is_gone_at_the_edge_is_refused_when_it_comes_back(node, edge):
    edge.round({}, [path_of(2)], propagate=wire.Propagate.NEVER)
    retired = views(node, "retired")[path_of(2)]
    record_verdicts(node.engine, [Verdict(retired.physical, retired.md5, WHY, as_sent=True)])
    assert edge.check().held == []
    assert planned(edge, FILES[path_of(2)]).hold
    (entry,) = list_quarantine(node.engine)
    assert (entry.hold, entry.loaded) == (True, True)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_hold_survives_a_restart_and_a_checkpoint(world, checkpoint):
    with world.node() as node:
        edge = Edge(node)
        edge.round(FILES)
        found = hold(node)
        record_verdicts(node.engine, [found])
        if checkpoint:
            node.engine.checkpoint()
    with world.node() as node:
        edge.node = node
        assert (edge.check().wanted, len(edge.check().held)) == ([], 1)
        (entry,) = list_quarantine(node.engine)
        assert (entry.hold, entry.loaded) == (True, True)
        assert planned(edge, FILES[path_of(2)]).hold
        assert "visible" in retry_quarantined(node.operator, A, path_of(2), found.physical)
