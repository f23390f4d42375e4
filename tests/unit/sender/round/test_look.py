"""What `sync --dry-run` announces, and `status` counts, is what the next round does."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest

from common import crash, wire
from common.crash import SimulatedCrash
from common.names import FilePath
from common.wire import Action, History, Outcome, Result
from sender.kept.receiver_state import changing_troubles
from sender.round.look import ReceiverStanding, dry_run, standing
from sender.round.round_words.round_report import RoundReport
from tests.support.edge import Edge
from tests.support.scripted_receiver import Drop, ScriptedReceiver


@dataclass
class World:
    """An edge and the receiver that it speaks to."""

    edge: Edge
    receiver: object
    options: dict[str, bool] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    def loaded(self, *numbers: int) -> list[str]:
        """Files that are here and loaded."""
        self.paths = [self.edge.write(number) for number in numbers]
        assert self.edge.round().exit_code == 0
        return self.paths

    def asked_for(self, path: str) -> wire.Wanted:
        content = self.edge.content(path)
        return wire.Wanted(
            path=path, size=len(content), md5=self.edge.files[path], reason="found damaged"
        )

    def dies_at(self, point: str) -> None:
        def hook(here: str) -> None:
            if here == point:
                raise SimulatedCrash(here)

        with contextlib.suppress(SimulatedCrash), crash.arm(hook):
            self.edge.round()

    def retry(self) -> None:
        """The operator lets everything be tried again."""
        remote = self.edge.remote()
        with remote.sync_tree() as sync, changing_troubles(sync, remote.directory) as troubles:
            troubles.retry()
        remote.close()


def refuse(action: Action, *, hold: bool = False) -> Callable[[wire.PlanEntry], wire.PlanDecision]:
    return lambda entry: wire.PlanDecision(path=entry.path, action=action, reason="no", hold=hold)


# -- situations ----------------------------------------------------------------------------------


def nothing(world: World) -> None:
    world.loaded(1, 2)


def first_contact(world: World) -> None:
    world.edge.write(1)
    world.edge.write(2, size=9000)


def new_files(world: World) -> None:
    world.loaded(1)
    world.edge.write(2)
    world.edge.write(3, sg="root.b", size=7000)


def replaced_and_gone(world: World) -> None:
    world.loaded(1, 2, 3, 4)
    world.edge.write(1, points=30)
    world.edge.remove(world.paths[1])


def touched(world: World) -> None:
    (path,) = world.loaded(1)
    os.utime(world.edge.data / path, (5, 5))


def wanted_again(world: World) -> None:
    path, _ = world.loaded(1, 2)
    del world.receiver.loaded[path]
    world.receiver.wanted = [world.asked_for(path)]


def wanted_again_as_it_is_no_more(world: World) -> None:
    path, _ = world.loaded(1, 2)
    world.receiver.wanted = [msgspec.structs.replace(world.asked_for(path), md5="0" * 32)]


def wanted_again_and_gone_here(world: World) -> None:
    path, *_ = world.loaded(1, 2, 3)
    world.receiver.wanted = [world.asked_for(path)]
    world.edge.remove(path)


def held_there(world: World) -> None:
    path, _ = world.loaded(1, 2)
    world.receiver.held = [world.asked_for(path)]


def wanted_by_one_with_another_past(world: World) -> None:
    path, lost, _ = world.loaded(1, 2, 3)
    del world.receiver.loaded[lost]
    world.receiver.wanted = [world.asked_for(path)]
    world.receiver.history = History.REWOUND


def a_last_copy(world: World) -> None:
    world.loaded(1)
    path = world.edge.write(2, size=200_000)
    world.dies_at("task.started")
    world.dies_at("task.planned")
    world.edge.remove(path)


def a_last_copy_that_is_no_tsfile(world: World) -> None:
    a_last_copy(world)
    (link,) = world.edge.data.glob("sync-sender/*/snapshot/**/*.tsfile")
    with link.open("r+b") as stream:
        stream.truncate(100)


def a_task_under_way_whose_files_are_here(world: World) -> None:
    world.loaded(1)
    world.edge.write(2, size=200_000)
    world.dies_at("task.planned")


def a_commit_that_is_not_on_the_list(world: World) -> None:
    world.loaded(1)
    world.edge.write(2)
    world.receiver.fault("POST /tasks/.*/end", *(Drop(late=True) for _ in range(6)))
    assert world.edge.round().exit_code == 4
    world.edge.write(3)


def a_commit_whose_file_is_gone_since(world: World) -> None:
    world.loaded(1)
    path = world.edge.write(2)
    world.receiver.fault("POST /tasks/.*/end", *(Drop(late=True) for _ in range(6)))
    assert world.edge.round().exit_code == 4
    world.edge.remove(path)


def a_commit_of_a_file_that_was_in_trouble(world: World) -> None:
    path = world.edge.write(1)
    world.receiver.judge = lambda at: Outcome(path=at, result=Result.MISSING)
    assert world.edge.round().exit_code == 3
    world.receiver.judge = lambda at: None
    world.receiver.fault("POST /tasks/.*/end", *(Drop(late=True) for _ in range(6)))
    assert world.edge.round().exit_code == 4
    assert path in world.receiver.loaded


def a_rewound_past(world: World) -> None:
    gone, lost, _ = world.loaded(1, 2, 3)
    world.edge.remove(gone)
    del world.receiver.loaded[lost]
    world.receiver.history = History.REWOUND


def another_engine(world: World) -> None:
    world.loaded(1, 2)
    world.edge.write(3)
    world.receiver.engine, world.receiver.epoch = "f" * 32, None
    world.receiver.loaded.clear()


def another_engine_and_an_expired_file(world: World) -> None:
    expired(world)
    world.receiver.engine, world.receiver.epoch = "f" * 32, None


def a_list_that_is_lost(world: World) -> None:
    gone, _ = world.loaded(1, 2)
    world.edge.write(3)
    world.edge.remove(gone)
    (found,) = world.edge.data.glob("sync-sender/*/last_local_files.txt")
    found.unlink()


def facts_that_are_lost(world: World) -> None:
    world.loaded(1, 2)
    world.edge.write(2, points=30)
    (found,) = world.edge.data.glob("sync-sender/*/local_files.state")
    found.write_bytes(b"rubbish")


def expired(world: World) -> None:
    world.loaded(1)
    world.edge.write(2)
    world.receiver.decide = refuse(Action.EXPIRED)
    assert world.edge.round().exit_code == 0
    world.receiver.decide = lambda entry: None


def expired_and_asked_for(world: World) -> None:
    expired(world)
    world.retry()


def in_trouble(world: World) -> None:
    world.loaded(1, 2)
    world.edge.write(3)
    world.receiver.decide = refuse(Action.REFUSED, hold=True)
    assert world.edge.round().exit_code == 3
    world.receiver.decide = lambda entry: None
    world.edge.remove(world.paths[0])


def in_trouble_and_tried_again(world: World) -> None:
    in_trouble(world)
    world.retry()


def in_trouble_as_it_was(world: World) -> None:
    in_trouble(world)
    world.edge.write(3, points=30)


def in_trouble_and_gone(world: World) -> None:
    in_trouble(world)
    world.edge.remove(world.edge.path(3))


def tried_every_round(world: World) -> None:
    world.edge.write(1)
    world.receiver.decide = refuse(Action.CONFLICT)
    assert world.edge.round().exit_code == 3
    world.receiver.decide = lambda entry: None


def too_many_gone(world: World) -> None:
    for path in world.loaded(*range(12))[:9]:
        world.edge.remove(path)


def too_many_gone_and_allowed(world: World) -> None:
    too_many_gone(world)
    world.options = {"accept_source": True}


def gone_and_kept(world: World) -> None:
    world.edge.with_settings(propagate_deletes="never")
    replaced_and_gone(world)


def a_directory_away(world: World) -> None:
    second = world.edge.root / "second"
    second.mkdir()
    gone, _ = world.loaded(1, 2)
    world.edge.with_settings(data_dirs=(world.edge.data, second))
    world.edge.remove(gone)
    world.edge.write(3)


def a_file_that_waits(world: World) -> None:
    gone, _ = world.loaded(1, 2)
    world.edge.put(world.edge.path(3), b"TsFile", resource=None)
    world.edge.remove(gone)
    world.edge.write(4, sg="root.b")


THEIR_WORD = [
    wanted_again,
    wanted_again_as_it_is_no_more,
    wanted_again_and_gone_here,
    held_there,
    wanted_by_one_with_another_past,
    a_commit_that_is_not_on_the_list,
    a_commit_whose_file_is_gone_since,
    a_commit_of_a_file_that_was_in_trouble,
    a_rewound_past,
    another_engine,
    another_engine_and_an_expired_file,
    a_list_that_is_lost,
    facts_that_are_lost,
]
"""Only the receiver can tell: `status` asks none."""

OUR_OWN = [
    nothing,
    first_contact,
    new_files,
    replaced_and_gone,
    touched,
    a_last_copy,
    a_last_copy_that_is_no_tsfile,
    a_task_under_way_whose_files_are_here,
    expired,
    expired_and_asked_for,
    in_trouble,
    in_trouble_and_tried_again,
    in_trouble_as_it_was,
    in_trouble_and_gone,
    tried_every_round,
    too_many_gone,
    too_many_gone_and_allowed,
    gone_and_kept,
    a_directory_away,
    a_file_that_waits,
]


@pytest.fixture
def world(tmp_path, receiver):
    edge = Edge(
        tmp_path / "edge",
        receiver.url,
        propagate_deletes="all",
        transfer={"batch_bytes": 1000, "chunk_bytes": 65536},
    )
    return World(edge, receiver)


def looked(world: World, look: Callable, **options: bool):
    remote = world.edge.remote()
    before = on_disk(world)
    try:
        return look(remote, **options)
    finally:
        remote.close()
        assert on_disk(world) == before, "looking changed something"


def on_disk(world: World) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in world.edge.root.rglob("*") if each.is_file()}


def deeds(world: World) -> tuple[dict, object]:
    """What a round really asks of the receiver, and its report."""
    receiver = world.receiver
    plans, deleted = len(receiver.plans), len(receiver.deleted_pages)
    report = world.edge.round(**world.options)
    assert report.error is None, report.error
    offered = receiver.plans[plans:]
    found = {
        "files": sorted(each.path for each in offered),
        "bytes": sum(each.size for each in offered),
        "replaced": sorted(each.path for each in offered if each.replaces),
        "deleted": sorted(receiver.deleted_pages[deleted:]),
    }
    return found, report


def announced(plan: dict) -> dict:
    additions = [each for task in plan["tasks"] for each in task["additions"]]
    assert plan["files"] == len(additions)
    replaced = sorted(each["file"] for each in additions if each["replaces"])
    gone = [each for task in plan["tasks"] for each in task["deletions"]]
    return {
        "files": sorted(each["file"] for each in additions),
        "bytes": plan["bytes"],
        "replaced": replaced,
        "deleted": sorted(gone + replaced),
    }


@pytest.mark.parametrize("situation", OUR_OWN + THEIR_WORD, ids=lambda each: each.__name__)
def test_the_next_round_does_what_was_foretold(world, situation):
    situation(world)
    before = looked(world, standing)
    allowed = world.options.get("accept_source", False)
    plan = looked(world, dry_run, accept_source=allowed)
    done, report = deeds(world)
    after = looked(world, standing)
    as_the_dry_run_says(plan, done, report)
    if situation in OUR_OWN:
        as_status_counts(before, plan, situation)
    assert (after.pending_files, after.pending_bytes) == (
        report.pending_files,
        report.pending_bytes,
    )
    assert after.complete_until == report.complete_until


def as_the_dry_run_says(plan: dict, done: dict, report: RoundReport) -> None:
    assert announced(plan) == done
    assert plan["held"] == report.as_json()["held"]
    assert plan["up_to_date"] == report.up_to_date
    assert len(plan["waiting"]) == report.waiting
    left = report.conflicts + report.quarantined + report.expired + report.failed + report.changed
    assert sorted(each["file"] for each in plan["skipped"]) == sorted(each.file for each in left)


def as_status_counts(found: ReceiverStanding, plan: dict, situation: Callable) -> None:
    """Pending is what the round will send, and what it leaves because of a trouble."""
    expired = {each["file"] for each in found.troubles if each["kind"] == "expired"}
    left = [each["file"] for each in plan["skipped"] if each["file"] not in expired]
    assert found.pending_files == plan["files"] + len(left)
    if not left:
        assert found.pending_bytes == plan["bytes"]
    assert bool(left) == (situation in (in_trouble,))


@pytest.mark.parametrize("point", ["round.taken_back", "round.rebuilt", "round.planned"])
def test_a_death_while_the_list_is_brought_to_the_plan_is_made_good(world, point):
    wanted_by_one_with_another_past(world)
    world.dies_at(point)
    plan = looked(world, dry_run, accept_source=False)
    done, report = deeds(world)
    as_the_dry_run_says(plan, done, report)
    world.receiver.wanted, world.receiver.history = [], None
    assert world.edge.round().quiet
    assert world.edge.listed == sorted(world.paths) == sorted(world.receiver.loaded)


@pytest.mark.parametrize("point", ["round.rebuilt", "round.troubles_forgotten", "round.planned"])
def test_another_receiver_is_offered_what_had_expired_at_the_old_one_whatever_is_cut_off(
    world, point
):
    """Once its history is begun, the next check says that it continues: nobody would ask again."""
    path = world.edge.write(1)
    world.receiver.decide = lambda entry: wire.PlanDecision(
        path=entry.path, action=Action.EXPIRED, reason="past the TTL"
    )
    world.edge.round()
    world.receiver.decide = lambda entry: None
    world.receiver.engine = "c" * 32
    world.dies_at(point)
    world.edge.round()
    assert list(world.receiver.loaded) == [path]


# -- a centre that forwards ----------------------------------------------------------------------


@pytest.fixture
def forwarding(world, receiver):
    """The edge's files are the committed ones of a receiver on this node."""
    with ScriptedReceiver(engine="b" * 32) as below:
        entry = msgspec.structs.replace(
            world.edge.config.receivers[0], source="receiver", source_url=below.url
        )
        world.edge.with_settings(receivers=(entry,))
        yield world, below


def catalogued(world: World, *numbers: int) -> list[wire.CatalogueEntry]:
    found = []
    for number in numbers:
        source = world.edge.data / world.edge.write(number, resource=None)
        at = FilePath.parse(world.edge.path(number)).physical("0123456789abcdef")
        target = world.edge.data / at.text
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        content = target.read_bytes()
        found.append(
            wire.CatalogueEntry(
                path=at.text,
                original=world.edge.path(number),
                sender="a" * 32,
                size=len(content),
                md5=hashlib.md5(content).hexdigest(),
                data_dir=str(world.edge.data),
                commit=5,
                first_time=1,
                last_time=100,
            )
        )
    return found


@pytest.mark.parametrize("allowed", [False, True])
def test_where_the_receiver_below_was_exchanged_the_dry_run_compares_as_the_round_does(
    forwarding, allowed
):
    world, below = forwarding
    gone, lost, kept = below.catalogue = catalogued(world, 1, 2, 3)
    assert world.edge.round().sent == 3
    below.engine, below.catalogue = "c" * 32, [lost, kept]
    del world.receiver.loaded[lost.path]
    if allowed:
        world.options = {"accept_source": True}
    plan = looked(world, dry_run, accept_source=allowed)
    done, report = deeds(world)
    assert done["files"] == [lost.path]
    assert done["deleted"] == ([gone.path] if allowed else [])
    as_the_dry_run_says(plan, done, report)


def test_a_touched_file_is_loaded_as_it_is(world):
    touched(world)
    found = looked(world, standing)
    assert (found.pending_files, found.complete_until) == (0, 1009)


def test_a_dry_run_asks_for_no_more_than_a_round(world):
    """It may stand beside the daemon: it starts no task and announces nothing."""
    wanted_again(world)
    before = len(world.receiver.requests)
    looked(world, dry_run, accept_source=False)
    asked = {request.method for request in world.receiver.requests[before:]}
    assert asked <= {"POST", "GET"}
    assert [r.path for r in world.receiver.requests[before:] if r.method == "POST"] == ["/check"]


def test_records_that_a_task_left_held_are_named_by_the_round_that_finishes_it(world):
    """The check was answered before; a receiver that tells none any more holds none."""
    held = wire.HeldRecords(group="root.a", files=3, reason="held at the receiver: too much")
    named = [{"file": "deletion files of root.a", "reason": f"{held.reason} (3 files)"}]
    world.loaded(1)
    world.edge.write(2)
    world.dies_at("task.end.sent")
    task, answer = list(world.receiver.tasks.items())[-1]
    world.receiver.tasks[task] = msgspec.structs.replace(answer, held_records=[held])
    report = world.edge.round()
    assert (report.exit_code, report.tasks, report.as_json()["held"]) == (6, [task], named)
    found = looked(world, standing)
    assert [msgspec.to_builtins(each) for each in found.held_records] == named
    assert world.edge.round().exit_code == 0
    assert looked(world, standing).held_records == ()
