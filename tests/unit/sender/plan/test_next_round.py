"""What a dry run announces and what status counts is what the next round does."""

from __future__ import annotations

import msgspec
import pytest

from common import wire
from common.wire import Action, History, Result
from sender.round.look import dry_run, standing
from tests.support.edge import Edge
from tests.support.scripted_receiver import Drop


@pytest.fixture
def edge(receiver, tmp_path):
    return Edge(
        tmp_path / "edge", receiver.url, transfer={"batch_bytes": 1000, "chunk_bytes": 65536}
    )


def new_files(edge, receiver):
    edge.write(1)
    edge.write(2, size=5000)


def a_file_that_is_wanted_again(edge, receiver):
    path, _ = edge.write(1), edge.write(2)
    edge.round()
    del receiver.loaded[path]
    wanted = wire.Wanted(path=path, size=1, md5=edge.files[path], reason="found damaged")
    receiver.wanted = [wanted]
    return lambda: setattr(receiver, "wanted", [])


def a_file_that_is_wanted_again_and_gone(edge, receiver):
    path, _ = edge.write(1), edge.write(2)
    edge.round()
    del receiver.loaded[path]
    receiver.wanted = [wire.Wanted(path=path, size=1, md5=edge.files[path], reason="found damaged")]
    edge.remove(path)


def a_file_that_the_receiver_holds(edge, receiver):
    path, _ = edge.write(1), edge.write(2)
    edge.round()
    held = wire.Wanted(path=path, size=1, md5=edge.files[path], reason="bad as it was sent")
    receiver.held = [held]
    receiver.decide = refuse(path, Action.REFUSED)


def the_last_copy_of_a_file(edge, receiver):
    """A round was cut off with the file linked, and then its source went."""
    edge.write(1)
    edge.round()
    path = edge.write(2)
    (snapshot,) = (each / "snapshot" for each in edge.data.glob("sync-sender/*"))
    link = snapshot / path
    link.parent.mkdir(parents=True)
    link.hardlink_to(edge.data / path)
    edge.remove(path)


def a_task_whose_answer_was_lost(edge, receiver):
    edge.write(1)
    receiver.fault("POST /tasks/.*/end", *(Drop(late=True) for _ in range(6)))
    assert edge.round().exit_code == 4
    edge.write(2)


def a_receiver_that_was_restored(edge, receiver):
    gone, lost, _ = edge.write(1), edge.write(2), edge.write(3)
    edge.round()
    edge.remove(gone)
    receiver.history = History.REWOUND
    del receiver.loaded[lost]


def another_engine_that_has_a_part(edge, receiver):
    path, other, _ = edge.write(1), edge.write(2), edge.write(3)
    edge.round()
    receiver.history = History.NEW
    del receiver.loaded[path]
    receiver.loaded[other] = b"something else"


def a_lost_list(edge, receiver):
    edge.write(1)
    edge.round()
    edge.write(2)
    for each in edge.data.glob("sync-sender/*/last_local_files.txt"):
        each.unlink()


def touched_files(edge, receiver):
    path, other = edge.write(1), edge.write(2)
    edge.round()
    edge.put(path, edge.content(path))
    edge.put(other, edge.content(other)[:-1] + b"?", resource=None)


def a_replaced_file(edge, receiver):
    edge.write(1)
    edge.round()
    edge.write(1, points=20)


def gone_files(edge, receiver):
    gone, _, other = edge.write(1), edge.write(2), edge.write(3, sg="root.b")
    edge.round()
    edge.remove(gone)
    edge.remove(other)


def an_emptied_directory(edge, receiver):
    paths = [edge.write(number) for number in range(12)]
    edge.round()
    for path in paths[:10]:
        edge.remove(path)


def a_refused_file(edge, receiver):
    path, _ = edge.write(1), edge.write(2)
    receiver.decide = refuse(path, Action.REFUSED, hold=True)
    edge.round()


def a_refused_file_that_is_another_now(edge, receiver):
    path, _ = edge.write(1), edge.write(2)
    receiver.decide = refuse(path, Action.REFUSED, hold=True)
    edge.round()
    receiver.decide = lambda entry: None
    edge.write(1, points=20)


def a_conflict_beside_a_deletion(edge, receiver):
    path, _ = edge.write(1), edge.write(2)
    edge.round()
    edge.remove(path)
    new = edge.write(3)
    receiver.decide = refuse(new, Action.CONFLICT, hold=True)
    edge.round()


def an_expired_file(edge, receiver):
    path, _ = edge.write(1), edge.write(2)
    receiver.decide = refuse(path, Action.EXPIRED)
    edge.round()


def an_expired_file_and_another_engine(edge, receiver):
    an_expired_file(edge, receiver)
    receiver.decide = lambda entry: None
    receiver.history = History.NEW


def a_file_that_is_not_closed(edge, receiver):
    edge.write(1)
    edge.round()
    edge.write(2, resource=None)


def refuse(path, action, *, hold=False):
    def decide(entry):
        if entry.path != path:
            return None
        return wire.PlanDecision(path=path, action=action, reason="no", hold=hold)

    return decide


SITUATIONS = [
    new_files,
    a_file_that_is_wanted_again,
    a_file_that_is_wanted_again_and_gone,
    a_file_that_the_receiver_holds,
    the_last_copy_of_a_file,
    a_task_whose_answer_was_lost,
    a_receiver_that_was_restored,
    another_engine_that_has_a_part,
    a_lost_list,
    touched_files,
    a_replaced_file,
    gone_files,
    an_emptied_directory,
    a_refused_file,
    a_refused_file_that_is_another_now,
    a_conflict_beside_a_deletion,
    an_expired_file,
    an_expired_file_and_another_engine,
    a_file_that_is_not_closed,
]
ONLY_THE_RECEIVER_KNOWS = {
    a_file_that_is_wanted_again,
    a_file_that_the_receiver_holds,
    a_task_whose_answer_was_lost,
    a_receiver_that_was_restored,
    another_engine_that_has_a_part,
    a_lost_list,
    an_expired_file_and_another_engine,
}
KEPT_BACK = {a_refused_file: 1, a_conflict_beside_a_deletion: 1}
"""Files that wait for an operator: not of the plan, and not loaded either."""


@pytest.mark.parametrize("propagate", ["replaced", "all"])
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.__name__)
def test_a_dry_run_announces_what_the_round_does(edge, receiver, situation, propagate):
    edge.with_settings(propagate_deletes=propagate)
    situation(edge, receiver)
    remote = edge.remote()
    announced = dry_run(remote, accept_source=False)
    stands = standing(remote)
    remote.close()
    receiver.plans.clear()
    receiver.deleted_pages.clear()
    report = edge.round()
    additions = [each for task in announced["tasks"] for each in task["additions"]]
    deletions = [each for task in announced["tasks"] for each in task["deletions"]]
    assert sorted(each["file"] for each in additions) == sorted(e.path for e in receiver.plans)
    assert announced["files"] == len(receiver.plans)
    assert announced["bytes"] == sum(each.size for each in receiver.plans)
    replaced = {each["file"] for each in additions if each["replaces"]}
    assert replaced == {each.path for each in receiver.plans if each.replaces}
    assert sorted({*deletions, *replaced}) == sorted(receiver.deleted_pages)
    held = {each.file: each.reason for each in report.held}
    assert {each["file"]: each["reason"] for each in announced["held"]} == held
    assert announced["up_to_date"] == report.up_to_date
    if situation not in ONLY_THE_RECEIVER_KNOWS:
        assert stands.problem is None
        kept_back = KEPT_BACK.get(situation, 0)
        assert stands.pending_files == announced["files"] + kept_back


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.__name__)
def test_a_dry_run_changes_nothing(edge, receiver, situation):
    situation(edge, receiver)
    before = on_disk(edge)
    remote = edge.remote()
    dry_run(remote, accept_source=False)
    standing(remote)
    remote.close()
    assert on_disk(edge) == before


def on_disk(edge):
    return {
        str(each): (each.stat().st_ino, each.stat().st_mtime_ns, each.read_bytes())
        for each in edge.root.rglob("*")
        if each.is_file()
    }


def test_status_counts_after_a_round_what_the_round_left(edge, receiver):
    bad, _ = edge.write(1), edge.write(2)
    receiver.judge = lambda path: (
        wire.Outcome(path=path, result=Result.CONFLICT) if path == bad else None
    )
    report = edge.round()
    remote = edge.remote()
    stands = standing(remote)
    remote.close()
    assert (stands.pending_files, stands.pending_bytes) == (1, len(edge.content(bad)))
    assert (report.pending_files, report.pending_bytes) == (1, len(edge.content(bad)))
    assert stands.complete_until == report.complete_until


def test_whoever_looks_reads_only_so_much(edge, receiver, monkeypatch):
    """Where all was touched, status does not read a whole disk: the rest counts as not loaded."""
    from sender.round import look

    monkeypatch.setattr(look, "_COMPARED", 0)
    path = edge.write(1)
    edge.round()
    edge.put(path, edge.content(path))
    remote = edge.remote()
    assert standing(remote).pending_files == 1
    assert msgspec.json.encode(dry_run(remote, accept_source=False)["files"]) == b"0"
    remote.close()
