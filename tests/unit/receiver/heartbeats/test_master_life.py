"""Lives of the master: of this engine, or of a copy that went its own way."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from common.durable import Tree
from common.errors import NoSpaceError, TsferryError
from receiver.heartbeats.master_life import MasterLife
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.errors import RefusedCommitError
from receiver.tablet_copies.copies_wire import CopyPage, DropOrder, DropOrders
from receiver.tablet_copies.replica_store import UnheardMasterError
from tests.support.metadata import B, seen
from tests.support.spark_world import NORTH
from tests.support.tsfile_bytes import build
from tests.support.two_masters import LEASE, TwoMasters


def _history_ends(engine: Engine) -> None:
    with engine.reading():
        engine._window.move(engine.newest_commit)


def test_a_copy_that_went_its_own_way_is_told_from_the_engine_however_long_ago_that_was(
    tmp_path: Path,
) -> None:
    with Engine.open(tmp_path / "one") as engine:
        life = MasterLife(engine)
        first, before = life.ident(), engine.newest_commit
        shutil.copytree(tmp_path / "one", tmp_path / "copy")
        behind = engine.commit([seen()])
        assert (life.has(first, behind), life.lacks(first, behind)) == (True, False)
    with Engine.open(tmp_path / "one") as engine:  # who lived it knows it, in its next life
        life = MasterLife(engine)
        assert life.has(first, behind)
        second = life.ident()
        last = engine.commit([seen(B)])
        engine.checkpoint()
    with Engine.open(tmp_path / "one") as engine:
        _history_ends(engine)
        life = MasterLife(engine)
        for heard in (first, before), (first, behind), (second, last):
            assert (life.has(*heard), life.lacks(*heard)) == (True, False)
    with Engine.open(tmp_path / "copy") as copied:
        life = MasterLife(copied)
        copied.commit([seen(B)])
        assert life.lacks(first, behind)  # before its own life has a name as well
        assert life.ident() not in (first, second)
        _history_ends(copied)
        assert (life.has(first, before), life.lacks(first, before)) == (True, False)
        for heard in (first, behind), (second, last):
            assert (life.has(*heard), life.lacks(*heard)) == (False, True)
        # What is above its newest commit it may have missed: it may be the one that was replaced.
        assert not life.lacks(second, copied.newest_commit + 1)


@pytest.mark.parametrize("steps", [1, 2])
def test_what_a_command_commits_in_a_copy_is_not_of_the_life_that_the_copy_was_made_in(
    tmp_path: Path, steps: int
) -> None:
    """An operator restores, has `fsck --repair` or a token made, and starts the server then."""
    with Engine.open(tmp_path / "one") as engine:
        life = MasterLife(engine)
        first, before = life.ident(), engine.newest_commit
        shutil.copytree(tmp_path / "one", tmp_path / "copy")
        behind = engine.commit([seen()])
    for _ in range(steps):
        with Engine.open(tmp_path / "copy") as copied:
            copied.commit([seen(B)])
            copied.commit_with(lambda _: [seen(B, "other")])
    with Engine.open(tmp_path / "copy") as copied:
        _history_ends(copied)
        life = MasterLife(copied)
        for _ in range(2):
            assert (life.has(first, before), life.lacks(first, before)) == (True, False)
            assert (life.has(first, behind), life.lacks(first, behind)) == (False, True)
            assert life.ident()
        with copied.reading() as state:
            assert len(state.master_lives.rows) == 1 + steps + 1


def test_a_process_of_an_engine_that_nodes_have_never_heard_of_has_no_life(tmp_path: Path) -> None:
    for _ in range(2):
        with Engine.open(tmp_path) as engine:
            engine.commit([seen()])
            with engine.reading() as state:
                assert not state.master_lives.rows


def test_a_life_has_no_name_before_that_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine.open(tmp_path) as engine:
        life = MasterLife(engine)

        def full(*_: object, **__: object) -> None:
            raise NoSpaceError("no space left")

        with monkeypatch.context() as patch:
            patch.setattr(engine, "commit", full)
            assert life.ident() == ""
        assert life.ident() == life.ident() != ""
        with engine.reading() as state:
            assert list(state.master_lives.rows) == [life.ident()]
        for op in (
            records.MasterLifeBegun(life.ident(), 1),
            records.MasterLifeBegun("", 1),
            records.MasterLifeBegun("another", engine.newest_commit + 1),
        ):
            with pytest.raises(RefusedCommitError):
                engine.commit([op])


def test_a_node_that_was_away_for_longer_than_the_history_lets_go_what_its_own_master_has_forgotten(
    tmp_path: Path,
) -> None:
    there = TwoMasters(tmp_path, 2)
    try:
        master, node = there.masters[0], there.nodes[0]
        names = [f"sequence/root.wind/0/0/{each}-{each}-0-0.tsfile" for each in (1, 2)]
        for each in names:
            master.world.load(NORTH, each, build({"root.wind.d1": {"s1": [(1, 1)]}}))
        _all_go_on(there)
        node.stop()
        with master.engine.reading() as state:
            gone, left = sorted(state.files)
        master.engine.commit([records.FileDeleted(gone, "operator")])
        master.engine.commit([records.FileForgotten(gone)])
        _history_ends(master.engine)
        node.start()
        _all_go_on(there)
        (tablet,) = node.store.tablets()
        assert list(node.store.replica(tablet).files()) == [left]
        assert node.store.replica(tablet).kept() == []
    finally:
        there.close()


def test_nothing_is_taken_and_nothing_goes_by_a_life_of_the_master_that_is_not_noted(
    tmp_path: Path,
) -> None:
    there = TwoMasters(tmp_path, 1)
    try:
        master, node = there.masters[0], there.nodes[0]
        master.world.load(NORTH, "sequence/root.wind/0/0/1-1-0-0.tsfile", build({}))
        _all_go_on(there)
        (tablet,) = node.store.tablets()
        master.die()
        there.pass_time(LEASE + 1)
        assert master.take_over()
        mark = master.manager.mark()
        assert mark.life != node.home.seen.life  # type: ignore[union-attr]
        with pytest.raises(UnheardMasterError):
            node.puller.run_once()
        order = DropOrders(master=mark, tablets=[DropOrder(tablet=tablet, generation=1)])
        with pytest.raises(UnheardMasterError):
            node.store.drop(order.tablets, order.master)
        node.report()
        node.puller.run_once()
        node.store.drop(order.tablets, order.master)
        assert node.store.tablets() == []
    finally:
        there.close()


def test_a_life_is_noted_before_anything_is_pulled_in_it(tmp_path: Path) -> None:
    """Else a power cut left files of a life that the node has never heard of."""
    there = TwoMasters(tmp_path, 1)
    try:
        master, node = there.masters[0], there.nodes[0]
        node.report()
        master.die()
        there.pass_time(LEASE + 1)
        assert master.take_over()
        node.report()
        node.stop(power=True)
        node.start()
        assert node.home.seen is not None
        assert node.home.seen.life == master.manager.life.ident()
        with Tree(node.root / "home") as home:
            assert master.manager.life.ident().encode() in home.read("storage-node.json")
    finally:
        there.close()


def _all_go_on(there: TwoMasters) -> None:
    for _ in range(3):
        there.masters[0].one_pass()
        for node in there.nodes:
            node.goes_on()
        there.pass_time(6.0)


def test_a_list_that_another_life_goes_on_with_is_read_anew_once_that_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what it brought was taken for something that the life before had never committed."""
    there = TwoMasters(tmp_path, 1)
    try:
        master, node = there.masters[0], there.nodes[0]
        names = [f"sequence/root.wind/0/0/{each}-{each}-0-0.tsfile" for each in (1, 2, 3)]
        contents = [build({"root.wind.d1": {"s1": [(each, 1)]}}) for each in (1, 2, 3)]
        master.world.load(NORTH, names[0], contents[0])
        master.one_pass()
        node.report()
        master.one_pass()
        master.copies.lists._page = 1
        of_master = node.page

        def page(tablet: str, after: str | None, digest: str, since: int) -> CopyPage:
            if after is not None and master._lives == 1:
                master.die()
                there.pass_time(LEASE + 1)
                assert master.take_over(own=True)
                master.copies.lists._page = 1
                master.world._tag = 10
                master.world.load(NORTH, names[1], contents[1])
            return of_master(tablet, after, digest, since)

        monkeypatch.setattr(node, "page", page)
        with suppress(TsferryError):
            node.puller.run_once()
        assert master._lives == 2
        (tablet,) = node.store.tablets()
        node.report()
        assert node.home.doubt == ""
        _all_go_on(there)
        assert len(node.store.replica(tablet).files()) == 2
    finally:
        there.close()


def test_a_node_of_before_there_were_lives_takes_nothing_before_it_has_noted_one(
    tmp_path: Path,
) -> None:
    there = TwoMasters(tmp_path, 1)
    try:
        master, node = there.masters[0], there.nodes[0]
        node.report()
        assert node.home.seen is not None
        was = msgspec.structs.replace(node.home.seen, life="")
        node.home._mark = msgspec.structs.replace(node.home._mark, seen=was)
        with pytest.raises(UnheardMasterError):
            node.store.must_be_noted(master.manager.mark())
        node.store.must_be_noted(was)  # of an earlier state of this release, both of them
        node.report()
        node.store.must_be_noted(master.manager.mark())
    finally:
        there.close()
