"""A death at each step of a round, and at each step of the recovery after it."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter

import pytest

from common import crash
from common.crash import SimulatedCrash
from tests.support import tiers

ANEW = b"another resource"
SETTINGS = {
    "propagate_deletes": "all",
    "task_max_files": 4,
    "transfer": {"batch_bytes": 2000, "chunk_bytes": 65536},
}

POINTS = [
    "ledger.sent",
    "ledger.state_written",
    "ledger.current_written",
    "ledger.last_deleted",
    "ledger.renamed",
    "recovery.folded",
    "recovery.logs_removed",
    "recovery.links_dropped",
    "round.recovered",
    "round.planned",
    "round.task_done",
    "snapshot.linked",
    "snapshot.taken",
    "snapshot.synced",
    "snapshot.dropped",
    "synclogs.begun",
    "synclogs.deleted",
    "synclogs.sending",
    "synclogs.files",
    "synclogs.ended",
    "synclogs.removed",
    "task.begun",
    "task.started",
    "task.epoch",
    "task.snapshot",
    "task.planned",
    "task.deleted.sent",
    "task.deletions.sent",
    "task.file.recorded",
    "task.ended",
    "task.end.sent",
    "task.loaded",
    "task.noted",
    "upload.block.before",
    "upload.block.acknowledged",
    "batch.before",
    "batch.acknowledged",
]


def die_at(name: str, passage: int):
    passages: Counter[str] = Counter()

    def hook(here: str) -> None:
        passages[here] += 1
        if here == name and passages[here] == passage:
            raise SimulatedCrash(here)

    return hook


def change(edge) -> None:
    """What happened at the edge since the first round: gone, replaced, new, late, large.

    And of a file that stays the database has written another resource.
    """
    (edge.data / f"{edge.path(2)}.resource").write_bytes(ANEW)
    edge.remove(edge.path(0))
    edge.write(1, points=30)
    edge.write(4)
    edge.write(5, size=200_000)
    edge.write(6, first=10, kind="unsequence")


def crashed(edge, name: str, passage: int) -> bool:
    with contextlib.suppress(SimulatedCrash), crash.arm(die_at(name, passage)):
        edge.round()
        return False
    return True


def settle(edge, centre) -> None:
    """The next rounds complete without a human; what is loaded is what is here."""
    for _ in range(3):
        report = edge.round()
        assert report.error is None, report.error
        assert report.exit_code == 0, report.as_json()
        if not report.tasks:
            break
    else:
        raise AssertionError("the rounds do not come to rest")
    assert centre.loaded(edge.uuid) == edge.files
    if edge.path(2) in edge.files:
        (two,) = centre.data.glob(f"sequence/{edge.sg}/**/*-2-0-0*.resource")
        assert two.read_bytes() == (edge.data / f"{edge.path(2)}.resource").read_bytes()
    assert edge.listed == sorted(edge.files)
    assert edge.leftovers == []


def test_the_list_of_points_is_the_whole_list(shared, make_edge):
    edge = make_edge(shared.url, **SETTINGS)
    seen: set[str] = set()
    for number in range(4):
        edge.write(number)
    with crash.arm(seen.add):
        edge.round()
        change(edge)
        edge.round()
    ours = ("ledger.", "recovery.", "round.", "snapshot.", "synclogs.", "task.", "upload.")
    missing = {each for each in seen if each.startswith((*ours, "batch."))} - set(POINTS)
    # Reached at the first contact only; test_a_death_at_the_first_contact has these.
    assert missing == {"round.lost_told", "round.rebuilt", "round.troubles_forgotten"}
    assert set(POINTS) - seen == set()


AGAIN = ("ledger.renamed", "snapshot.", "synclogs.", "task.begun", "task.ended", "upload.block.")
CASES = [(point, 1) for point in POINTS]
CASES += tiers.sample(
    [(point, 2) for point in POINTS if point.startswith(AGAIN)],
    1,
    kind=lambda each: each[0].partition(".")[0],
)


@pytest.mark.few(26)
@pytest.mark.parametrize(("point", "passage"), CASES)
def test_a_death_at_any_step_loses_nothing_and_loads_nothing_twice(
    shared, make_edge, point, passage
):
    edge = make_edge(shared.url, **SETTINGS)
    for number in range(4):
        edge.write(number)
    edge.round()
    change(edge)
    crashed(edge, point, passage)
    settle(edge, shared)


@pytest.mark.parametrize(
    "point",
    [
        "round.lost_told",
        "round.rebuilt",
        "round.troubles_forgotten",
        "ledger.state_written",
        "ledger.current_written",
        "ledger.renamed",
    ],
)
def test_a_death_at_the_first_contact(shared, make_edge, point):
    edge = make_edge(shared.url, **SETTINGS)
    edge.write(1)
    crashed(edge, point, 1)
    settle(edge, shared)


FIRST = ("task.ended", "task.end.sent", "task.loaded", "synclogs.files")
SECOND = [each for each in POINTS if each.startswith("recovery")]


@pytest.mark.parametrize(
    ("first", "second"),
    tiers.sample(itertools.product(FIRST, SECOND), 1, kind=lambda each: each[0]),
)
def test_a_recovery_that_is_cut_off_is_done_again(shared, make_edge, first, second):
    edge = make_edge(shared.url, **SETTINGS)
    for number in range(4):
        edge.write(number)
    edge.round()
    change(edge)
    assert crashed(edge, first, 1)
    crashed(edge, second, 1)
    settle(edge, shared)


def test_a_file_that_came_back_is_not_deleted_by_the_task_that_was_interrupted(shared, make_edge):
    edge = make_edge(shared.url, **SETTINGS)
    for number in range(4):
        edge.write(number)
    edge.round()
    away = edge.root / "away"
    away.mkdir()
    for suffix in ("", ".resource"):
        (edge.data / f"{edge.path(0)}{suffix}").rename(away / f"x{suffix}")
    edge.write(5, size=200_000)
    assert crashed(edge, "upload.block.acknowledged", 2)
    for suffix in ("", ".resource"):
        (away / f"x{suffix}").rename(edge.data / f"{edge.path(0)}{suffix}")
    report = edge.round()
    assert (report.sent, report.deleted, report.exit_code) == (1, 0, 0), report.as_json()
    settle(edge, shared)


def test_a_last_copy_is_sent_although_its_source_is_gone(shared, make_edge):
    edge = make_edge(shared.url, **SETTINGS)
    edge.write(1, size=200_000)
    content = edge.files
    assert crashed(edge, "upload.block.acknowledged", 2)
    edge.remove(edge.path(1))
    assert edge.round().sent == 1
    # It was loaded, and it is gone: that is what the receiver is told with it.
    gone = [
        (each["path"], each["md5"])
        for state in ("retired", "deleted")
        for each in shared.call("files", "--sender", edge.uuid, "--state", state)["files"]
    ]
    assert gone == list(content.items())
    settle(edge, shared)
