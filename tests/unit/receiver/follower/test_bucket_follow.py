"""A node has what the copies in a store have, as one state, and comes after them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import msgspec
import pytest

from common import crash
from common.durable import Tree
from common.errors import ConfigError, DamagedError, LockedError, NotFoundError, TsferryError
from receiver.follower.log_source import ReplacedSourceError
from receiver.follower.read_node import BehindError, ReadNode
from receiver.metadata.engine import Engine
from receiver.metadata.log.checkpoints import checkpoints
from receiver.operator.directories import look
from receiver.operator.status import status
from receiver.storage.stores.incarnation import next_incarnation
from receiver.storage.stores.store_manifests import StoreManifest
from tests.support.followed import FollowedCentre, known, wait_for


def checkpoint_lsns(node: ReadNode) -> list[int]:
    with Tree(node.engine.directory) as tree:
        return [each.lsn for each in checkpoints(tree)]


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[FollowedCentre]:
    made = FollowedCentre(tmp_path)
    yield made
    made.stop()


def test_a_node_has_what_the_store_has_and_follows(centre: FollowedCentre) -> None:
    centre.commit(0, 1)
    with centre.node() as node:
        assert known(node.engine) == {0, 1}
        centre.commit(2)
        node.follower.step()
        assert known(node.engine) == {0, 1, 2}
        centre.engine.checkpoint()
        centre.commit(3, 4)
        node.follower.step()
        assert known(node.engine) == {0, 1, 2, 3, 4}
        for ts, number in centre.commits:
            assert known(node.engine, ts) == set(range(number + 1))


def test_a_node_goes_on_after_a_restart_from_its_own_copy(centre: FollowedCentre) -> None:
    centre.commit(0, 1)
    with centre.node() as node:
        first = node.engine.directory
    centre.commit(2)
    with centre.node() as node:
        assert node.engine.directory == first
        node.follower.step()
        assert known(node.engine) == {0, 1, 2}


def test_a_node_whose_store_is_away_answers_from_its_copy_and_says_so(
    centre: FollowedCentre,
) -> None:
    centre.commit(0)
    with centre.node():
        pass
    (centre.root / "bucket").rename(centre.root / "away")
    (centre.root / "bucket").mkdir()
    try:
        with centre.node() as node:
            assert known(node.engine) == {0}
            with pytest.raises(TsferryError):
                node.follower.step()
            assert wait_for(lambda: node.follows().problem)
            assert node.problem() is not None
    finally:
        (centre.root / "bucket").rmdir()
        (centre.root / "away").rename(centre.root / "bucket")


def test_the_first_start_needs_the_store(centre: FollowedCentre) -> None:
    with pytest.raises(NotFoundError, match="no manifest"), centre.node():
        pass


def test_each_object_may_be_damaged_or_gone(centre: FollowedCentre) -> None:
    """Whatever is bad, a node has a state of the past, whole, or says which object it is."""
    for number in range(8):
        centre.commit(number)
        if number in (2, 5):
            centre.engine.checkpoint()
    centre.commit(8)
    for what in ("checkpoints", "log", "tags", "manifests"):
        for path in centre.objects(what):
            content = path.read_bytes()
            for bad in (None, content[: len(content) // 2], content[:-1] + b"\0"):
                path.unlink()
                if bad is not None:
                    path.write_bytes(bad)
                name = f"{what}-{path.name}-{0 if bad is None else len(bad)}"
                refusal = suppress(TsferryError) if what == "log" else nullcontext()
                with refusal, centre.node(name) as node:
                    found = known(node.engine)
                    assert found == set(range(len(found))), path
                    if what in ("checkpoints", "tags"):
                        assert found == centre.numbers, path
                path.unlink(missing_ok=True)
                path.write_bytes(content)


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(centre: FollowedCentre) -> None:
    for number in range(6):
        centre.commit(number)
        centre.engine.checkpoint()
    centre.commit(6)
    newest = StoreManifest.newest(centre.store, centre.uuid)
    assert newest is not None
    assert len(newest.checkpoints) > 1
    (centre.root / "bucket" / newest.checkpoints[-1].piece.key).write_bytes(b"nothing")
    with centre.node() as node:
        assert known(node.engine) == centre.numbers
        assert checkpoint_lsns(node) == [newest.checkpoints[-2].lsn]


def test_a_log_that_is_damaged_is_followed_up_to_there_and_passed_by_the_next_checkpoint(
    centre: FollowedCentre,
) -> None:
    centre.commit(0, 1)
    told: list[int] = []
    with ReadNode.open(centre.config(), anew=lambda: told.append(1)) as node:
        wait_for(lambda: node.follows().level_at)
        centre.commit(2)
        newest = StoreManifest.newest(centre.store, centre.uuid)
        assert newest is not None
        piece = centre.root / "bucket" / newest.segments[-1].pieces[-1].key
        piece.write_bytes(piece.read_bytes()[:-3])
        node.follower.step()
        assert known(node.engine) == {0, 1}
        assert piece.name in (node.follows().problem or "")
        assert not told
        centre.engine.checkpoint()
        centre.commit(3)
        newest = StoreManifest.newest(centre.store, centre.uuid)
        assert newest is not None
        (centre.root / "bucket" / newest.segments[0].pieces[0].key).write_bytes(b"")
        node.follower.step()
        assert told
        assert known(node.engine) == {0, 1}, "until it is opened again, it is what it was"
    with centre.node() as node:
        assert known(node.engine) == {0, 1, 2, 3}


def test_behind_by_more_than_the_log_that_is_kept_begins_anew(tmp_path: Path) -> None:
    centre = FollowedCentre(tmp_path, history=0.0)
    centre.commit(0, 1)
    with centre.node():
        pass
    for number in range(2, 12):
        centre.commit(number)
        centre.engine.collect()
        centre.engine.checkpoint()
    centre.commit(12)
    assert StoreManifest.newest(centre.store, centre.uuid).segments[0].first_lsn > 3  # type: ignore[union-attr]
    told: list[int] = []
    with ReadNode.open(centre.config(), anew=lambda: told.append(1)) as node:
        assert wait_for(lambda: told)
        assert known(node.engine) == {0, 1}
    with centre.node() as node:
        assert known(node.engine) == centre.numbers
        assert [each.name for each in (tmp_path / "node").glob("copy-*")] == ["copy-2"]
    centre.stop()


@pytest.mark.parametrize("cut", [2, 4])
def test_beyond_a_fork_a_node_has_the_new_past_and_nothing_of_the_old(
    centre: FollowedCentre, cut: int
) -> None:
    centre.commit(0, 1, 2, 3, 4)
    told: list[int] = []
    with ReadNode.open(centre.config(), anew=lambda: told.append(1)) as node:
        wait_for(lambda: node.follows().level_at)
        centre.restore("second", at=centre.commits[cut][0])
        node.follower.step()
        assert known(node.engine) == {0, 1, 2, 3, 4}
        assert "has taken over" in (node.follows().problem or "")
        centre.commit(7)
        node.follower.step()
        assert told
    with centre.node() as node:
        assert known(node.engine) == {*range(cut + 1), 7}
        assert node.follows().incarnation == 2


def test_an_owner_that_was_replaced_is_not_followed_again(centre: FollowedCentre) -> None:
    centre.commit(0)
    shutil.copytree(centre.root / "bucket", centre.root / "old")
    centre.restore("second")
    centre.commit(1)
    with centre.node():
        pass
    shutil.rmtree(centre.root / "bucket")
    (centre.root / "old").rename(centre.root / "bucket")
    with centre.node() as node:
        with pytest.raises(ReplacedSourceError, match="incarnation 2 has taken over"):
            node.follower.step()
        assert known(node.engine) == {0, 1}


def test_another_engine_is_not_followed_into_the_same_directory(tmp_path: Path) -> None:
    for each in ("one", "two"):
        (tmp_path / each).mkdir()
    one, two = FollowedCentre(tmp_path / "one"), FollowedCentre(tmp_path / "two")
    one.commit(0)
    two.commit(0)
    with one.node():
        pass
    other = msgspec.structs.replace(one.config(), follow=two.config().follow)
    with ReadNode.open(other) as node:
        with pytest.raises(ReplacedSourceError, match=two.uuid):
            node.follower.step()
        assert known(node.engine) == {0}
    one.stop()
    two.stop()


def test_a_node_takes_no_incarnation_and_puts_nothing(centre: FollowedCentre) -> None:
    centre.commit(0)
    before = sorted(centre.root.joinpath("bucket").rglob("*"))
    with centre.node() as node:
        node.follower.step()
        with Tree(node.engine.directory) as tree, pytest.raises(ConfigError, match="only reads"):
            next_incarnation(centre.store, tree, centre.uuid)
    assert sorted(centre.root.joinpath("bucket").rglob("*")) == before


def test_the_directories_of_nodes_and_writers_are_never_mixed_up(centre: FollowedCentre) -> None:
    centre.commit(0)
    with centre.node() as node:
        places = [centre.root / "node", node.engine.directory]
    for place in places:
        with pytest.raises(ConfigError, match="only reads"):
            Engine.open(place)
    with pytest.raises(ConfigError, match="not made by --follow"), centre.node("schema"):
        pass
    with centre.node(), pytest.raises(LockedError), centre.node():
        pass


def test_a_question_about_a_later_commit_waits_for_it_or_says_so(
    centre: FollowedCentre, monkeypatch: pytest.MonkeyPatch
) -> None:
    centre.commit(0)
    with centre.node() as node:
        wait_for(lambda: node.follows().level_at)
        ts = centre.commit(1)
        node.reach(ts)  # it looks at once
        assert known(node.engine) == {0, 1}
        monkeypatch.setattr("receiver.follower.read_node._PATIENCE", 0.05)
        with pytest.raises(BehindError, match=f"stands at commit {ts}"):
            node.reach(ts + 1)


def test_a_node_that_dies_at_any_step_begins_again_with_a_whole_state(
    centre: FollowedCentre,
) -> None:
    for number in range(5):
        centre.commit(number)
        if number == 3:
            centre.engine.checkpoint()
    for nth in range(1000):
        left = nth

        def die(name: str) -> None:
            nonlocal left
            if threading.current_thread() is threading.main_thread():
                left -= 1
                if left < 0:
                    raise crash.SimulatedCrash(name)

        try:
            with crash.arm(die), centre.node(f"node-{nth}"):
                pass
        except crash.SimulatedCrash:
            with centre.node(f"node-{nth}") as node:
                assert known(node.engine) == centre.numbers
        else:
            assert nth > 8
            return


def test_damage_of_a_copy_that_only_a_reader_meets_has_it_made_anew(
    centre: FollowedCentre,
) -> None:
    centre.commit(0, 1, 2)
    centre.engine.checkpoint()
    centre.commit(3)
    with centre.node() as node:
        wait_for(lambda: node.follows().level_at)
        tags = node.engine.directory / "tlog-1.tsf"
        tags.write_bytes(tags.read_bytes()[:24] + bytes(tags.stat().st_size - 24))
        with pytest.raises(DamagedError):
            known(node.engine)
        node.follower.step()
        assert node.follower.ready_anew
    with centre.node() as node:
        assert known(node.engine) == centre.numbers


def test_operators_commands_read_the_copy_of_a_node_that_does_not_run(
    centre: FollowedCentre,
) -> None:
    centre.commit(0, 1)
    with centre.node():
        pass
    with look(centre.config()) as there:
        assert known(there.engine) == {0, 1}
        assert status(there, "it does not run").senders == 2


def test_a_checkpoint_that_is_damaged_as_the_log_is_has_no_copy_taken_over_and_over(
    centre: FollowedCentre,
) -> None:
    centre.commit(0, 1)
    with centre.node() as node:
        wait_for(lambda: node.follows().level_at)
        centre.commit(2)
        centre.engine.checkpoint()
        centre.commit(3)
        newest = StoreManifest.newest(centre.store, centre.uuid)
        assert newest is not None
        for piece in (newest.segments[0].pieces[0], newest.checkpoints[-1].piece):
            (centre.root / "bucket" / piece.key).write_bytes(b"")
        for _ in range(3):
            with suppress(DamagedError):
                node.follower.step()
            assert not node.follower.ready_anew
            assert known(node.engine) == {0, 1}
        assert "the log ends here with commit 3" in (node.follows().problem or "")
        centre.engine.checkpoint()
        centre.commit(4)
        node.follower.step()
        assert node.follower.ready_anew
    with centre.node() as node:
        assert known(node.engine) == {0, 1, 2, 3, 4}
