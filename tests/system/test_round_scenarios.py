"""Whole histories of an edge and a centre: at the end the centre has what the edge has, once.

The rounds are those that the tests of IoTDB's sync tool had: new files, late data, every third
file deleted, several storage groups with virtual groups and partitions, restarts in between.
"""

from __future__ import annotations

import hashlib

import pytest

from common import crash
from common.crash import SimulatedCrash
from receiver.metadata.state.table_rows import FileState
from sender.config import ReceiverEntry
from tests.support import tiers
from tests.support.centre import centre as serving
from tests.support.edge import WEEK_MS, Edge
from tests.support.looking import in_sync, loaded, once, resources, rows, states
from tests.support.tsfile_bytes import build
from tests.system.sender.test_rounds import call

GROUPS = ("line_1", "line_1.deep_er", "Süd Werk")
PARTITIONS = (0, 2902)
VIRTUAL = (0, 1)


class Plant:
    """What happens at an edge, round by round.

    Attributes:
    """

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self._number = 0

    def put(self, group: str, virtual: int, partition: int, kind: str) -> str:
        """A closed file with two devices; late data lies in the past of its partition."""
        self._number += 1
        sg = f"{self.edge.sg}.{group}"
        offset = 1000 * self._number if kind == "sequence" else self._number
        begin = partition * WEEK_MS + offset
        devices = {
            f"{sg}.{kind[0]}{number}": {
                "s1": [(begin + each, each) for each in range(5)],
                "s_2": [(begin + each, each * self._number) for each in range(0, 5, 2)],
            }
            for number in (virtual, virtual + 2)
        }
        name = f"{1581324718762 + self._number}-{self._number}-0-0.tsfile"
        path = f"{kind}/{sg}/{virtual}/{partition}/{name}"
        content = build(devices)
        self.edge.put(path, content, resource=f"resource {self._number}".encode())
        return path

    def day(self) -> None:
        """New and late files in every group and partition."""
        for group in GROUPS:
            for virtual in VIRTUAL:
                for partition in PARTITIONS:
                    self.put(group, virtual, partition, "sequence")
                self.put(group, virtual, PARTITIONS[0], "unsequence")

    def delete_every_third(self) -> None:
        for path in sorted(self.edge.files)[::3]:
            self.edge.remove(path)

    def resources(self) -> dict[str, str]:
        """path -> MD5 of its resource here."""
        return {
            path: hashlib.md5((self.edge.data / f"{path}.resource").read_bytes()).hexdigest()
            for path in self.edge.files
        }


# -- rounds as the tests of IoTDB's sync tool had them -------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("propagate", ["all", "replaced", "never"])
def test_after_three_rounds_with_restarts_the_centre_has_what_the_edge_has(
    centre, make_edge, propagate
):
    edge = make_edge(centre.start(), propagate_deletes=propagate, task_max_files=7)
    plant = Plant(edge)
    gone: set[str] = set()
    for number in range(3):
        if number:
            before = set(edge.files)
            plant.delete_every_third()
            gone |= before - set(edge.files)
        plant.day()
        report = edge.round()
        assert report.exit_code == 0, report.as_json()
        centre.kill() if number % 2 else centre.stop()
        centre.start()
        in_sync(edge, centre.root)
        kept = resources(centre.root, edge.uuid)
        assert {path: kept[path] for path in edge.files} == plant.resources()
    assert edge.round().quiet, "nothing is left to do"
    where = "DELETED" if propagate == "all" else "RETIRED"
    assert gone <= set(states(centre.root, edge)[FileState[where]])
    once(centre.root, edge.uuid)


SENDER_STEPS = [
    "task.begun:1",
    "task.started:1",
    "task.planned:2",
    "task.deleted.sent:1",
    "task.file.recorded:2",
    "task.ended:1",
    "task.end.sent:2",
    "task.loaded:1",
    "ledger.last_deleted:1",
    "recovery.links_dropped:2",
]
RECEIVER_STEPS = [
    "tasks.started:1",
    "task.start.log:2",
    "batch.received:2",
    "upload.block_synced:1",
    "intake.moved:3",
    "tasks.ended:1",
    "task.end.ended:1",
    "placing.moved:2",
    "load.decided:1",
    "mlog.commit.durable:3",
    "load.committed:1",
    "finish.load_log:1",
    "finish.done:1",
]


@pytest.fixture
def history(make_edge):
    """An edge with a first round behind it and work of every kind before it."""

    def make(url: str) -> Edge:
        edge = make_edge(
            url,
            propagate_deletes="all",
            task_max_files=9,
            transfer={"batch_bytes": 4096, "chunk_bytes": 65536},
        )
        plant = Plant(edge)
        plant.day()
        assert edge.round().exit_code == 0
        plant.delete_every_third()
        plant.day()
        edge.write(900, size=150_000, sg=f"{edge.sg}.line_1", device=f"{edge.sg}.line_1.big")
        return edge

    return make


def settle(edge: Edge, centre) -> None:
    """Rounds without a human, until one has nothing to do; the first may still find a dead line."""
    for _ in range(4):
        report = edge.round()
        if report.error is None and not report.tasks:
            break
    assert (report.exit_code, report.tasks) == (0, []), report.as_json()
    in_sync(edge, centre.root)
    once(centre.root, edge.uuid)


def test_a_sender_that_dies_between_any_two_steps_is_simply_started_again(shared, history):
    edge = history(shared.url)
    for number, step in enumerate(SENDER_STEPS):
        name, _, passage = step.partition(":")
        left = [int(passage)]

        def die(here: str, name: str = name, left: list[int] = left) -> None:
            left[0] -= here == name
            if here == name and left[0] == 0:
                raise SimulatedCrash(here)

        edge.write(100 + number)
        edge.remove(sorted(edge.files)[number])
        try:
            with crash.arm(die):
                edge.round()
        except SimulatedCrash:
            continue
    settle(edge, shared)


@pytest.mark.slow
def test_a_receiver_that_dies_between_any_two_steps_is_simply_started_again(centre, history):
    edge = history(centre.start())
    for number, step in enumerate(tiers.sample(RECEIVER_STEPS, 6)):
        centre.stop()
        centre.start(env={"TSFERRY_CRASH_AT": step})
        edge.write(100 + number)
        edge.write(200 + number, size=100_000)
        edge.remove(sorted(edge.files)[number])
        report = edge.round()
        if centre.server.running:
            assert report.exit_code == 0, (step, report.as_json())
            continue
        centre.start()
        report = edge.round()
        assert report.exit_code == 0, (step, report.as_json())
        assert loaded(centre.root, edge.uuid) == edge.files, step
    centre.stop()  # some steps come behind the answer: it may die of the last one at any time
    centre.start()
    settle(edge, centre)


def test_two_senders_of_one_storage_group_keep_apart(shared, make_edge):
    first, second = make_edge(shared.url), make_edge(shared.url)
    second.sg = first.sg
    for each, name in ((first, "a"), (second, "b")):
        each.with_settings(propagate_deletes="all")
        for number in range(9):
            each.write(number, device=f"{each.sg}.{name}{number % 2}", points=7 + number)
    assert first.round().exit_code == 0
    assert second.round().exit_code == 0
    for each, name in ((first, "a"), (second, "b")):
        for path in sorted(each.files)[::3]:
            each.remove(path)
        each.write(20, device=f"{each.sg}.{name}0")
    assert first.round().exit_code == 0
    assert len(loaded(shared.root, second.uuid)) == 9, "the other's files of these names stay"
    assert second.round().exit_code == 0
    in_sync(first, shared.root)
    in_sync(second, shared.root)


def test_one_sender_serves_two_receivers_each_at_its_own_pace(shared, make_edge, tmp_path):
    with serving(tmp_path / "other") as other:
        edge = make_edge(shared.url, propagate_deletes="all")
        second = ReceiverEntry(name="dc2", url=other.start())
        edge.with_settings(receivers=(*edge.config.receivers, second))
        remotes = {each.name: each for each in edge.config.receivers}

        def round_with(*names: str) -> None:
            for name in names:
                both = edge.config
                edge.with_settings(receivers=(remotes[name],))
                report = edge.round()
                edge.config = both
                assert report.exit_code == 0, report.as_json()

        for number in range(6):
            edge.write(number)
        round_with("dc1", "dc2")
        edge.remove(edge.path(0))
        edge.write(1, points=33)
        edge.write(7)
        round_with("dc1")
        assert loaded(shared.root, edge.uuid) == edge.files
        assert len(loaded(other.root, edge.uuid)) == 6, "its own list"
        edge.remove(edge.path(7))  # came and went between two rounds of dc2
        other.kill()
        other.start()
        round_with("dc2", "dc1")
        for each in (shared, other):
            assert loaded(each.root, edge.uuid) == edge.files
        assert edge.path(7) not in states(other.root, edge)[FileState.DELETED]
        assert edge.leftovers == []


def test_the_command_syncs_all_receivers_and_its_code_tells_of_the_worst(shared, make_edge):
    edge = make_edge(shared.url)
    edge.write(1)
    config = edge.write_config()
    dead = '[[receiver]]\nname = "dead"\nurl = "http://127.0.0.1:9"\n'
    config.write_text(config.read_text().replace("[transfer]", f"{dead}[transfer]"))
    done = call(config, "--set", "transfer.max_retries=0", "sync")
    assert done.returncode == 4
    assert "dead" in done.stdout
    assert loaded(shared.root, edge.uuid) == edge.files, "the other was served"
    assert call(config, "sync", "--receiver", "dc1").returncode == 0
    assert call(config, "sync", "--receiver", "none").returncode == 2


# -- compaction at the edge ----------------------------------------------------------------------


def compact(edge: Edge, count: int = 20, **how: object) -> str:
    """`count` files out, one in."""
    for number in range(count):
        edge.remove(edge.path(number))
    return edge.write(0, level=1, first=0, points=1000 * count, **how)


@pytest.mark.parametrize("propagate", ["replaced", "all"])
def test_readers_see_a_compaction_as_one_change(shared, make_edge, propagate):
    edge = make_edge(shared.url, propagate_deletes=propagate)
    for number in range(20):
        edge.write(number)
    edge.round()
    old = loaded(shared.root, edge.uuid)
    compact(edge)
    seen = []
    with crash.arm(
        lambda name: name == "task.ended" and seen.append(loaded(shared.root, edge.uuid))
    ):
        report = edge.round()
    assert seen == [old], "the old ones, until the commit"
    ended = report.deleted if propagate == "all" else report.retired
    assert (report.sent, ended, report.exit_code) == (1, 20, 0), report.as_json()
    assert len(report.tasks) == 1
    in_sync(edge, shared.root)
    found = rows(shared.root, edge.uuid)
    (new,) = (row for row in found if row.state is FileState.LIVE)
    assert {row.changed for row in found if row.state is not FileState.LIVE} == {new.created}


@pytest.mark.few(1)
@pytest.mark.parametrize("propagate", ["replaced", "all"])
def test_a_compacted_file_in_conflict_leaves_the_old_ones_visible_until_it_is_resolved(
    shared, make_edge, propagate
):
    owner, edge = make_edge(shared.url), make_edge(shared.url, propagate_deletes=propagate)
    owner.write(1, device=f"{owner.sg}.d1")
    owner.round()
    for number in range(20):
        edge.write(number)
    edge.round()
    old = loaded(shared.root, edge.uuid)
    compact(edge)
    new = edge.path(0, level=1)
    mixed = {
        f"{edge.sg}.d1": {"s1": [(each, each) for each in range(20_000)]},
        f"{owner.sg}.d1": {"s1": [(1, 1)]},
    }
    edge.put(new, build(mixed))
    for _ in range(2):
        report = edge.round()
        assert (report.exit_code, report.deleted) == (3, 0), report.as_json()
        assert [each.file for each in report.conflicts] == [new]
        assert len(report.held) == 20
        assert loaded(shared.root, edge.uuid) == old, "the old ones stay"
    shared.call("owners", "transfer", f"{owner.sg}.d1", edge.uuid)
    report = edge.round()
    ended = report.deleted if propagate == "all" else report.retired
    assert (report.sent, ended, report.exit_code) == (1, 20, 0), report.as_json()
    in_sync(edge, shared.root)


def test_a_compacted_file_that_is_damaged_leaves_the_old_ones_visible(shared, make_edge):
    edge = make_edge(shared.url)
    for number in range(20):
        edge.write(number)
    edge.round()
    old = loaded(shared.root, edge.uuid)
    new = compact(edge)
    whole = edge.content(new)
    edge.put(new, whole[: len(whole) // 2])
    report = edge.round()
    assert report.deleted == report.retired == 0, report.as_json()
    assert loaded(shared.root, edge.uuid) == old
    edge.put(new, whole)
    report = edge.round()
    assert (report.sent, report.retired) == (1, 20), report.as_json()
    in_sync(edge, shared.root)
