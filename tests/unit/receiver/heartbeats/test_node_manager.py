"""Heartbeats of storage nodes at their master: the failure cases, each by its name."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from common.errors import (
    CloneError,
    ConflictError,
    GoneError,
    NotFoundError,
    NotTheWriterError,
)
from common.wire import IncarnationMark
from receiver.heartbeats import node_manager
from receiver.heartbeats.node_manager import NodeManager
from receiver.heartbeats.node_reports import ReportNews
from receiver.heartbeats.node_wire import NodeHeartbeat, NodeHeartbeatAnswer, TabletReport
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import FencedError
from receiver.storagenode.master_calls import Masters
from tests.support.heard_nodes import (
    HeldByTest,
    SpeakingNode,
    as_it_stands,
    held_by,
    tablet,
    tablet_id,
)
from tests.support.remote_log import MemoryPlace, MemoryRemote


class Master:
    """An engine, and what it hears; the clock is the test's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 0.0
        self.incarnation = 0
        self.engine = Engine.open(path)
        self.manager = self._manager()

    def _manager(self) -> NodeManager:
        return NodeManager(
            self.engine,
            timeout=30.0,
            incarnation=lambda: (
                IncarnationMark(number=self.incarnation, ident="i" * 32)
                if self.incarnation
                else None
            ),
            monotonic=lambda: self.now,
        )

    def restart(self) -> None:
        self.engine.close()
        self.engine = Engine.open(self.path)
        self.manager = self._manager()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    made = Master(tmp_path / "master")
    yield made
    made.engine.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SpeakingNode]:
    made = SpeakingNode(tmp_path / "node")
    yield made
    made.close()


def seen(master: Master, uuid: str):
    (found,) = [each for each in master.manager.nodes() if each.row.uuid == uuid]
    return found


# -- registration --------------------------------------------------------------------------------


def test_who_is_not_known_is_asked_to_register_and_nothing_else_of_it_is_processed(
    master: Master, node: SpeakingNode
):
    said = msgspec.structs.replace(
        node.talk.next(),
        registration=None,
        report=TabletReport(is_incremental=False, sequence=1, number=1, is_last=True),
    )
    answer = master.manager.heartbeat(said)
    assert answer.needs_reregister
    assert not answer.needs_full_report
    assert answer.acknowledged is None
    assert master.manager.nodes() == []


def test_a_registration_is_committed_once_and_a_quiet_heartbeat_costs_nothing(
    master: Master, node: SpeakingNode
):
    node.settle(master.manager)
    row = seen(master, node.uuid).row
    assert (row.kind, row.instance, row.boot) == ("remote", 1, node.home.start.boot)
    assert row.addresses == (node.url,)
    commit = master.engine.newest_commit
    quiet = node.talk.next()
    assert quiet.registration is None
    assert quiet.report is None
    answer = master.manager.heartbeat(quiet)
    assert not answer.needs_full_report, "a full report was received of this instance"
    assert master.engine.newest_commit == commit


def test_after_a_restart_of_the_master_every_node_registers_and_reports_in_full(
    master: Master, node: SpeakingNode
):
    node.store.put(*(tablet(each, files=each) for each in range(2500)))
    assert len(node.settle(master.manager)) == 4
    master.restart()
    assert node.say(master.manager).needs_reregister
    commit = master.engine.newest_commit
    said = node.settle(master.manager)
    assert [each.registration is not None for each in said] == [True, False, False, False]
    assert [each.report.page for each in said[1:] if each.report is not None] == [0, 1, 2]
    assert held_by(master.manager, node.uuid) == as_it_stands(node.store)
    assert master.engine.newest_commit == commit, "what is committed of it is the same"


def test_registrations_of_what_is_none_come_to_an_end(
    master: Master, node: SpeakingNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(node_manager, "_MOST_NODES", 1)
    node.settle(master.manager)
    other = SpeakingNode(tmp_path / "other")
    with pytest.raises(ConflictError, match="there are 1 nodes: forget"):
        other.say(master.manager)
    node.restart()
    node.settle(master.manager)
    other.close()


def test_a_forgotten_node_registers_anew(master: Master, node: SpeakingNode):
    node.settle(master.manager)
    master.engine.commit([records.NodeForgotten(node.uuid)])
    assert node.say(master.manager).needs_reregister
    node.settle(master.manager)
    assert seen(master, node.uuid).heard is not None


def test_a_node_that_is_forgotten_at_that_moment_is_not_accepted(
    master: Master, node: SpeakingNode
):
    with pytest.raises(NotFoundError, match=node.uuid):
        master.manager.accept(node.uuid)


def test_a_lost_node_is_told_so_and_changes_nothing(master: Master, node: SpeakingNode):
    node.settle(master.manager)
    master.engine.commit([records.NodeLost(node.uuid)])
    node.store.put(tablet(1))
    with pytest.raises(GoneError, match="declared the node"):
        node.say(master.manager)
    assert held_by(master.manager, node.uuid) == []
    node.talk.begin_anew()
    with pytest.raises(GoneError, match="nodes found"):
        node.say(master.manager)
    node.restart()
    with pytest.raises(GoneError):
        node.say(master.manager)
    assert seen(master, node.uuid).row.instance == 1


# -- starts --------------------------------------------------------------------------------------


def test_a_higher_instance_has_restarted_and_its_full_report_is_due(
    master: Master, node: SpeakingNode
):
    node.store.put(tablet(1), tablet(2))
    node.settle(master.manager)
    node.restart()
    assert node.home.start.instance == 2
    answer = node.say(master.manager)
    assert answer.needs_full_report
    assert answer.acknowledged is None
    node.settle(master.manager)
    assert seen(master, node.uuid).row.instance == 2
    assert held_by(master.manager, node.uuid) == as_it_stands(node.store)


def test_old_instances_report_after_the_new_ones(master: Master, node: SpeakingNode):
    node.store.put(tablet(1))
    node.settle(master.manager)
    node.store.put(tablet(1, files=7))
    late = node.talk.next()
    assert late.report is not None
    node.restart()
    node.store.drop(1)
    node.settle(master.manager)
    before = seen(master, node.uuid)
    master.now += 10
    with pytest.raises(CloneError, match="is of an older start: start 2 is the one"):
        master.manager.heartbeat(late)
    after = seen(master, node.uuid)
    assert held_by(master.manager, node.uuid) == []
    assert after.row == before.row
    assert after.age == 10, "who is refused is no sign of life"
    assert "older start" in after.heard.refused


def copy_of(node: SpeakingNode, path: Path) -> SpeakingNode:
    shutil.copytree(node.path, path)
    return SpeakingNode(path, HeldByTest())


def test_an_equal_instance_with_another_boot_id_is_a_clone(
    master: Master, node: SpeakingNode, tmp_path: Path
):
    node.settle(master.manager)
    clone = copy_of(node, tmp_path / "clone")
    node.restart()
    node.store.put(tablet(1))
    node.settle(master.manager)
    assert clone.home.start.instance == node.home.start.instance == 2
    with pytest.raises(CloneError, match="is of a copy"):
        clone.say(master.manager)
    assert node.settle(master.manager)
    assert held_by(master.manager, node.uuid) == [tablet(1)]
    clone.close()


def test_a_clone_that_was_started_more_often_is_still_a_clone(
    master: Master, node: SpeakingNode, tmp_path: Path
):
    node.settle(master.manager)
    clone = copy_of(node, tmp_path / "clone")
    node.restart()
    node.settle(master.manager)
    for _ in range(5):
        clone.restart()
    assert clone.home.start.instance > node.home.start.instance
    with pytest.raises(CloneError, match="is of a copy"):
        clone.say(master.manager)
    master.restart()
    with pytest.raises(CloneError, match="is of a copy"):
        clone.say(master.manager)
    node.settle(master.manager)
    clone.close()


def test_starts_that_no_master_heard_of_are_no_clone(master: Master, node: SpeakingNode):
    node.settle(master.manager)
    for _ in range(9):
        node.restart()
    node.settle(master.manager)
    assert seen(master, node.uuid).row.instance == 10


def test_a_node_that_was_restored_from_a_copy_goes_on_when_an_operator_says_so(
    master: Master, node: SpeakingNode, tmp_path: Path
):
    shutil.copytree(node.path, tmp_path / "copy")
    for _ in range(3):
        node.restart()
    node.settle(master.manager)
    restored = SpeakingNode(tmp_path / "copy", HeldByTest())
    restored.store.put(tablet(9))
    with pytest.raises(CloneError, match=r"start 2 .* start 4 is the one.*nodes accept"):
        restored.say(master.manager)
    master.manager.accept(node.uuid)
    restored.settle(master.manager)
    row = seen(master, node.uuid).row
    assert (row.instance, row.boot) == (5, restored.home.start.boot)
    assert held_by(master.manager, node.uuid) == [tablet(9)]
    with pytest.raises(CloneError, match="is of an older start"):
        node.say(master.manager)
    restored.restart()
    assert restored.home.start.instance == 6
    restored.settle(master.manager)
    restored.close()


# -- reports -------------------------------------------------------------------------------------


def test_a_lost_answer_has_the_same_changes_told_again_until_they_are_acknowledged(
    master: Master, node: SpeakingNode
):
    node.settle(master.manager)
    node.store.put(tablet(1, files=1), tablet(2))
    said = node.talk.next()
    assert master.manager.heartbeat(said).acknowledged == 2
    node.store.drop(2)
    again = node.talk.next()
    assert again.report is not None
    assert again.report.base == 0, "no answer came"
    assert again.report.sequence == 3
    node.talk.answered(master.manager.heartbeat(again))
    assert held_by(master.manager, node.uuid) == [tablet(1, files=1)]
    assert node.talk.next().report is None


def test_answers_and_reports_in_another_order(master: Master, node: SpeakingNode):
    node.settle(master.manager)
    node.store.put(tablet(1, files=1))
    first = node.talk.next()
    node.store.put(tablet(1, files=2))
    node.store.put(tablet(3))
    node.store.drop(3)
    second = node.talk.next()
    assert master.manager.heartbeat(second).acknowledged == 4
    answer = master.manager.heartbeat(first)
    assert answer.acknowledged == 4, "what came late is known to be older"
    assert held_by(master.manager, node.uuid) == [tablet(1, files=2)]
    node.talk.answered(answer)
    assert node.talk.next().report is None


def test_changes_that_do_not_go_on_from_what_is_here_are_not_taken(
    master: Master, node: SpeakingNode
):
    node.settle(master.manager)
    node.store.put(tablet(1), tablet(2))
    said = node.talk.next()
    report = msgspec.structs.replace(said.report, base=1)
    answer = master.manager.heartbeat(msgspec.structs.replace(said, report=report))
    assert answer.acknowledged == 0
    assert held_by(master.manager, node.uuid) == []


def test_what_the_store_has_forgotten_is_told_by_a_full_report(master: Master, node: SpeakingNode):
    node.store.kept = 3
    node.settle(master.manager)
    node.store.put(*(tablet(each) for each in range(10)))
    said = node.settle(master.manager)
    assert said[0].report is not None
    assert not said[0].report.is_incremental
    assert held_by(master.manager, node.uuid) == as_it_stands(node.store)


def test_a_full_report_counts_when_its_last_page_is_there(master: Master, node: SpeakingNode):
    node.store.put(tablet(5000, files=9))
    node.settle(master.manager)
    node.store.put(*(tablet(each) for each in range(2500)))
    node.store.drop(5000)
    node.restart()
    node.say(master.manager)
    pages: list[NodeHeartbeat] = []
    for _ in range(2):
        pages.append(node.talk.next())
        answer = master.manager.heartbeat(pages[-1])
        assert not answer.needs_full_report
        node.talk.answered(answer)
        assert held_by(master.manager, node.uuid) == [], "of this start nothing is there yet"
    assert answer.received is not None
    assert answer.received.pages == 2
    for each in (*pages, pages[0]):  # again, and in another order
        again = master.manager.heartbeat(each)
        assert (again.received, again.error) == (answer.received, "")
    node.settle(master.manager)
    assert held_by(master.manager, node.uuid) == as_it_stands(node.store)
    for each in pages:
        assert master.manager.heartbeat(each).acknowledged is not None
    assert held_by(master.manager, node.uuid) == as_it_stands(node.store)


def test_a_full_report_cut_off_by_a_restart_of_the_master_begins_anew(
    master: Master, node: SpeakingNode
):
    node.store.put(*(tablet(each) for each in range(2500)))
    for _ in range(3):
        node.say(master.manager)
    master.restart()
    node.store.drop(0)
    node.settle(master.manager)
    assert held_by(master.manager, node.uuid) == as_it_stands(node.store)


def test_a_report_that_lies_is_refused_and_what_was_known_stays(master: Master, node: SpeakingNode):
    node.store.put(tablet(1), tablet(2))
    node.settle(master.manager)
    heartbeat = node.talk.next()
    for bad in ([tablet(4), tablet(3)], [tablet(3), tablet(3)]):
        report = TabletReport(is_incremental=True, base=2, sequence=9, tablets=tuple(bad))
        answer = master.manager.heartbeat(msgspec.structs.replace(heartbeat, report=report))
        assert "in order of their ids" in answer.error
        assert answer.acknowledged == 2
    assert held_by(master.manager, node.uuid) == [tablet(1), tablet(2)]


@pytest.mark.parametrize("bad", ["A" * 32, "a" * 31, " " * 32, "g" * 32, "a" * 64])
def test_an_id_that_is_none_is_refused(master: Master, node: SpeakingNode, bad: str):
    node.settle(master.manager)
    for row in (tablet(1, digest=bad), msgspec.structs.replace(tablet(1), id=bad)):
        report = TabletReport(is_incremental=True, sequence=9, tablets=(row,))
        answer = master.manager.heartbeat(msgspec.structs.replace(node.talk.next(), report=report))
        assert "32 lower-case hex digits" in answer.error
    report = TabletReport(is_incremental=True, sequence=9, removed=(bad,))
    answer = master.manager.heartbeat(msgspec.structs.replace(node.talk.next(), report=report))
    assert "32 lower-case hex digits" in answer.error
    assert answer.acknowledged == 0


def test_pages_that_overlap_are_refused(master: Master, node: SpeakingNode):
    node.settle(master.manager)
    heartbeat = node.talk.next()

    def say(page: int, *tablets: int, sequence: int = 7):
        report = TabletReport(
            is_incremental=False,
            sequence=sequence,
            number=5,
            page=page,
            tablets=tuple(tablet(each) for each in tablets),
        )
        return master.manager.heartbeat(msgspec.structs.replace(heartbeat, report=report))

    assert say(0, 1, 5).error == ""
    assert "in order of the tablets' ids" in say(1, 4, 6).error
    assert "of one moment" in say(1, 6, sequence=8).error
    assert say(1, 6).received.pages == 2


def test_a_tablet_that_the_catalogue_does_not_have_is_shown_and_never_deleted(
    master: Master, node: SpeakingNode
):
    table, known = tablet_id(100), tablet_id(1)
    master.engine.commit(
        [
            records.TableMade(table, "root.sg"),
            records.TabletMade(known, table, 0, 1),
        ]
    )
    node.store.put(tablet(1), tablet(2))
    node.settle(master.manager)
    reports = seen(master, node.uuid).heard.reports
    assert reports.held.find(tablet_id(2)) == tablet(2)
    assert reports.held.find(tablet_id(3)) is None
    assert [each.id for each in reports.held.unknown()] == [tablet_id(2)]
    assert held_by(master.manager, node.uuid) == [tablet(1), tablet(2)]


def test_who_listens_hears_what_changed(master: Master, node: SpeakingNode):
    heard: list[ReportNews] = []
    master.manager.listeners.append(heard.append)
    node.settle(master.manager)
    node.store.put(tablet(1), tablet(2))
    node.settle(master.manager)
    node.store.drop(1)
    node.settle(master.manager)
    assert [(each.is_full, len(each.tablets), list(each.removed)) for each in heard] == [
        (True, 0, []),
        (False, 2, []),
        (False, 0, [tablet_id(1)]),
    ]


# -- time, and who is the master -----------------------------------------------------------------


def test_only_the_clock_that_nobody_sets_says_who_is_down(master: Master, node: SpeakingNode):
    node.settle(master.manager)
    master.now += 30
    assert not seen(master, node.uuid).is_down
    master.now += 1
    assert seen(master, node.uuid).is_down
    assert held_by(master.manager, node.uuid) == [], "nothing is deleted for silence"
    node.say(master.manager)
    assert seen(master, node.uuid).age == 0


@pytest.mark.parametrize("jump", [3e8, -3e8])
def test_a_clock_that_jumps_for_years_at_master_and_node_makes_nobody_down_and_no_start_old(
    master: Master, node: SpeakingNode, monkeypatch: pytest.MonkeyPatch, jump: float
):
    manager = NodeManager(master.engine, timeout=30.0)  # by the clocks of this machine
    node.store.put(tablet(1))
    node.settle(manager)
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + jump)
    (found,) = manager.nodes()
    assert not found.is_down
    assert 0 <= found.age < 30
    node.store.put(tablet(2))
    node.settle(manager)
    assert len(held_by(manager, node.uuid)) == 2
    assert manager.nodes()[0].heard.refused == ""
    node.restart()
    assert node.home.start.instance == 2, "its next start is the next one, whatever the time"
    node.settle(manager)
    assert manager.nodes()[0].heard.refused == ""


def test_after_a_restart_of_the_master_a_node_has_its_time_before_it_is_down(
    master: Master, node: SpeakingNode
):
    node.settle(master.manager)
    master.now = 1000.0
    master.restart()
    assert not seen(master, node.uuid).is_down
    master.now += 31
    assert seen(master, node.uuid).is_down


def test_a_node_of_another_engine_is_refused(master: Master, node: SpeakingNode):
    said = msgspec.structs.replace(node.talk.next(), engine="e" * 32)
    with pytest.raises(ConflictError, match="is of the engine eeee"):
        master.manager.heartbeat(said)
    assert master.manager.nodes() == []


def test_reports_to_a_master_that_was_replaced_are_answered_with_not_master(
    master: Master, node: SpeakingNode
):
    master.incarnation = 4
    node.settle(master.manager)
    said = msgspec.structs.replace(node.talk.next(), incarnation=5)
    with pytest.raises(NotTheWriterError, match=r"incarnation 4 .* has heard incarnation 5"):
        master.manager.heartbeat(said)


def test_a_master_that_can_commit_nothing_is_none(
    master: Master, node: SpeakingNode, monkeypatch: pytest.MonkeyPatch
):
    node.settle(master.manager)
    monkeypatch.setattr(Engine, "trouble", property(lambda self: "another has taken over"))
    with pytest.raises(NotTheWriterError, match="no master now: another has taken over"):
        node.say(master.manager)


def test_a_master_fails_over_and_reports_that_go_to_the_old_one_are_fenced(tmp_path: Path):
    """Two engines over one remote log, as over etcd: the second has taken the first one's place."""
    place = MemoryPlace()
    first = Engine.open(tmp_path / "first", background=False, remote=MemoryRemote(place))
    node = SpeakingNode(tmp_path / "node")
    node.store.put(tablet(1, files=4))
    node.settle(NodeManager(first, timeout=30.0))
    uuid = node.uuid
    second = Engine.open(tmp_path / "second", background=False, remote=MemoryRemote(place))
    masters = Masters([Heard("first", first), Heard("second", second)])
    with pytest.raises(FencedError):
        first.commit([records.NodeDraining(uuid, draining=True)])
    node.store.put(tablet(1, files=5))
    while masters.say(node.talk.next, node.talk.answered) is not None:
        pass
    assert masters.url == "second"
    found = masters._masters.current.manager
    assert held_by(found, uuid) == [tablet(1, files=5)]
    (row,) = [each.row for each in found.nodes()]
    assert (row.instance, row.boot) == (1, node.home.start.boot), "it is known from the log"
    assert node.home.doubt == ""
    node.close()
    first.close()
    second.close()


class Heard:
    """A master in this process; see `HearsNodes`."""

    def __init__(self, url: str, engine: Engine) -> None:
        self.url = url
        self.manager = NodeManager(engine, timeout=30.0)

    def heartbeat(self, said: NodeHeartbeat) -> NodeHeartbeatAnswer:
        return self.manager.heartbeat(said)


def test_many_full_reports_after_a_restart_of_the_master(master: Master, tmp_path: Path):
    """As a thousand nodes with ten thousand tablets, in small: by turns, a page each."""
    nodes = [SpeakingNode(tmp_path / f"n{each}") for each in range(10)]
    for number, each in enumerate(nodes):
        each.store.put(*(tablet(at, files=number) for at in range(number, number + 2500)))
    for _ in range(2):
        busy = list(nodes)
        while busy:  # each says one thing, and the next one has its turn
            busy = [
                each
                for each in busy
                if each.talk.answered(master.manager.heartbeat(each.talk.next())) is not None
            ]
        for each in nodes:
            assert held_by(master.manager, each.uuid) == as_it_stands(each.store)
        master.restart()
    for each in nodes:
        each.close()


# -- restored masters ----------------------------------------------------------------------------


def go_on(master: Master, number: int) -> None:
    master.engine.commit(
        [records.NodeRegistered(f"{number:032x}", "directory", f"/disk/{number}", "here", 1)]
    )


def test_a_restored_master_that_has_gone_on_is_doubted_until_an_operator_confirms_it(
    master: Master, node: SpeakingNode, tmp_path: Path
):
    node.settle(master.manager)
    master.engine.close()
    shutil.copytree(master.path, tmp_path / "copy")
    master.restart()
    go_on(master, 1)
    node.settle(master.manager)
    last = node.home.seen
    master.engine.close()
    shutil.rmtree(master.path)
    shutil.copytree(tmp_path / "copy", master.path)
    master.restart()
    go_on(master, 2)  # as every start does, before it hears anybody
    assert last is not None
    assert master.engine.newest_commit > last.commit
    node.settle(master.manager)
    assert "which it never had" in node.home.doubt
    with master.engine.reading():
        master.engine.window.move(master.engine.newest_commit)  # its history goes by
    for is_restarted in (False, True):
        if is_restarted:
            node.restart()
        node.settle(master.manager)
        assert node.home.doubt
    node.home.confirm()
    go_on(master, 3)
    node.settle(master.manager)
    assert node.home.doubt == ""


def test_a_node_of_a_release_without_lives_doubts_a_restored_master_within_its_history(
    master: Master, node: SpeakingNode, tmp_path: Path
):
    node.settle(master.manager)
    master.engine.close()
    shutil.copytree(master.path, tmp_path / "copy")
    master.restart()
    go_on(master, 1)
    node.settle(master.manager)
    own, lost = master.engine.newest_commit, node.talk.next()
    assert lost.commit == own
    assert lost.life
    lost = msgspec.structs.replace(lost, life="")
    assert not master.manager.heartbeat(lost).lacks
    master.engine.close()
    shutil.rmtree(master.path)
    shutil.copytree(tmp_path / "copy", master.path)
    master.restart()
    go_on(master, 2)
    assert master.engine.newest_commit > own
    assert master.manager.heartbeat(lost).lacks == own


def test_a_master_that_goes_on_from_its_own_commits_is_not_doubted(
    master: Master, node: SpeakingNode
):
    for number in range(1, 4):
        go_on(master, number)
        node.settle(master.manager)
        if number == 2:
            master.engine.checkpoint()
        go_on(master, number + 10)
        master.restart()
        go_on(master, number + 20)
        node.settle(master.manager)
        assert node.home.doubt == ""


def test_a_commit_that_is_behind_the_history_is_not_said_to_be_another_masters(
    master: Master, node: SpeakingNode
):
    node.settle(master.manager)
    go_on(master, 1)
    with master.engine.reading():
        master.engine.window.move(master.engine.newest_commit)
    node.settle(master.manager)
    assert node.home.doubt == ""
