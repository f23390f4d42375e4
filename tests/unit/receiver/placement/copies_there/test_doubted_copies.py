"""A node that gives other bytes than a file has: it counts no more, and nobody's good copy goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.errors import NoSpaceError, UnreachableError
from receiver.metadata.model import records
from receiver.metadata.state.tables.place_tables.doubted import DoubtedCopyRow
from receiver.storage.reading.reader_calls import ReaderCalls
from receiver.tablet_copies.copies_wire import FilePlace
from receiver.tablet_copies.copy_scrub import CopyScrub
from tests.support.copy_nodes import Machine
from tests.support.releasing_centre import ReleasingCentre
from tests.support.spark_world import NORTH, World
from tests.support.tsfile_bytes import build
from tests.support.two_masters import LEASE, TwoMasters


@pytest.fixture
def centre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReleasingCentre]:
    centre = ReleasingCentre(tmp_path, monkeypatch)
    centre.back.doubted = lambda place, name: centre.doubts.doubt(
        _at(centre, place), place.tablet, name
    )
    yield centre
    centre.close()


@pytest.fixture
def pair(centre: ReleasingCentre) -> tuple[Machine, Machine]:
    return centre.add(), centre.add()


@pytest.fixture
def physical(centre: ReleasingCentre, pair: tuple[Machine, Machine]) -> str:
    physical = centre.load()
    centre.settle()
    return physical


def _at(centre: ReleasingCentre, place: FilePlace) -> str:
    return next(each.uuid for each in centre.nodes if place.url == f"http://{each.host}")


def _doubted(centre: ReleasingCentre) -> list[tuple[str, str]]:
    """Nodes and names, as the catalogue has them."""
    with centre.engine.reading() as state:
        return sorted(state.doubted_table.rows)


def _looks(node: Machine) -> int:
    """It reads what it was told about; how many were rotten."""
    scrub = CopyScrub(node.store, node.paths[0], every=None, rate=1 << 30, wait=lambda _: False)
    for tablet, name in node.doubted:
        scrub.doubt(tablet, name)
    node.doubted.clear()
    return scrub.look_at_doubted()


def test_a_copy_that_a_proof_finds_rotten_counts_no_more_and_is_replaced(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    sound, rotten = pair
    centre.damage(rotten, physical)
    assert centre.has(physical) == [sound.uuid, rotten.uuid]
    assert centre.evict() == 0
    assert centre.has(physical) == [sound.uuid]  # at once, and not when it has read it
    assert [name for _, name in rotten.doubted] == [physical]
    assert sound.doubted == []
    assert _looks(rotten) == 1
    centre.settle()
    assert centre.has(physical) == [sound.uuid, rotten.uuid]
    assert centre.whole_at(physical) == ["host1", "host2"]
    assert centre.evict() == 1


def test_a_node_that_calls_its_rotten_copy_good_does_not_count_until_it_has_proved_it(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    sound, liar = pair
    centre.damage(liar, physical)
    centre.evict()
    liar.puller.run_once()
    centre.settle()  # it says that it is complete, again and again
    assert centre.has(physical) == [sound.uuid]
    assert centre.evict() == 0
    (found,) = liar.paths[0].glob(f"tablets/*/{physical}")
    found.write_bytes(centre.contents[physical])
    assert centre.evict() == 1
    assert centre.has(physical) == [sound.uuid, liar.uuid]


def test_what_has_rotted_here_accuses_no_node(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    (centre.world.data / physical).write_bytes(centre.contents[physical][:-1] + b"?")
    assert centre.evict() == 0
    assert centre.has(physical) == [each.uuid for each in pair]
    assert [each.doubted for each in pair] == [[], []]


def test_a_copy_that_is_accused_and_good_stays(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    one, other = pair
    one.doubted += [(each, physical) for each in one.store.tablets()]
    one.doubted.append(("f" * 32, physical))  # a tablet that is not here
    one.doubted.append((one.store.tablets()[0], "nothing"))
    assert _looks(one) == 0
    centre.report()
    assert centre.has(physical) == [one.uuid, other.uuid]
    assert centre.whole_at(physical) == ["host1", "host2"]


@pytest.mark.parametrize("lies", [False, True])
def test_a_new_copy_comes_from_a_good_one_while_another_node_gives_other_bytes(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str, lies: bool
) -> None:
    """What has left the master is nowhere else; what the node says of itself does not matter."""
    assert centre.evict() == 1
    with centre.engine.reading() as state:
        (placed,) = state.placement_table.rows.values()
    leader = next(each for each in pair if each.uuid == placed.leader)
    other = next(each for each in pair if each is not leader)
    centre.damage(leader, physical)
    centre.rules = centre.rules._replace(copies=3)
    third = centre.add()
    centre.assignment._rules = centre.rules
    centre.settle()
    assert third.host in centre.whole_at(physical)
    assert other.doubted == []
    assert {name for _, name in leader.doubted} == {physical}
    if not lies:
        assert _looks(leader) == 1
        centre.settle()
        assert len(centre.whole_at(physical)) == 3


def test_what_comes_back_from_a_node_with_other_bytes_tells_it_and_comes_from_the_next(
    centre: ReleasingCentre,
    pair: tuple[Machine, Machine],
    physical: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    centre.evict()
    told: list[str] = []
    monkeypatch.setattr(
        "receiver.storage.reading.copy_reads.tell_doubt",
        lambda calls, place, name: told.append(place.url),
    )
    first = centre.places.of_file(physical, perhaps=True)[0]
    bad = next(each for each in pair if each.uuid == _at(centre, first))
    centre.damage(bad, physical)
    assert centre.fetched(physical) == centre.contents[physical]
    assert told == [first.url]
    assert _doubted(centre) == [(bad.uuid, physical)]


def _next_life(centre: ReleasingCentre) -> None:
    """The master is started anew; its nodes report in full."""
    centre.assignment.close()
    centre.engine.close()
    centre.world = World.reopened(centre.world.root)
    centre.live()
    centre.settle()


def test_a_restart_of_the_master_is_no_reason_to_count_a_copy_with_other_bytes(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    """Edges free what is counted; the node that calls its copy good says so to any master."""
    sound, liar = pair
    good = centre.contents[physical]
    centre.damage(liar, physical)
    centre.evict()
    _next_life(centre)
    centre.contents[physical] = good
    assert centre.has(physical) == [sound.uuid]
    assert centre.evict() == 0
    (found,) = liar.paths[0].glob(f"tablets/*/{physical}")
    found.write_bytes(good)
    assert centre.evict() == 1
    _next_life(centre)
    assert centre.has(physical) == [sound.uuid, liar.uuid]  # what it has proved holds as well


def test_a_copy_that_its_node_has_found_rotten_counts_for_no_master_until_it_is_replaced(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    """By its full report, though the master has seen nothing."""
    sound, rotten = pair
    centre.damage(rotten, physical)
    rotten.doubted += [(each, physical) for each in rotten.store.tablets()]
    assert _looks(rotten) == 1
    rotten.is_silent = True
    _next_life(centre)
    rotten.is_silent = False
    centre.report()
    assert centre.has(physical) == [sound.uuid]
    centre.settle()
    assert centre.has(physical) == [sound.uuid, rotten.uuid]
    assert centre.whole_at(physical) == ["host1", "host2"]


def test_a_doubt_of_a_file_that_is_none_any_more_keeps_no_tablet_short(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    """Nobody can prove the right bytes of it, and starts of the master are no end of a doubt."""
    _, liar = pair
    centre.load()
    centre.settle()
    centre.damage(liar, physical)
    centre.evict()
    assert _doubted(centre) == [(liar.uuid, physical)]
    centre.end(physical, forget=False)
    centre.settle()
    assert _doubted(centre) == [(liar.uuid, physical)]  # it may come back
    centre.engine.commit([records.FileForgotten(physical)])
    centre.settle()
    assert physical not in liar.names()
    with centre.engine.reading() as state:
        (tablet,) = state.tablet_table.rows.values()
        placed = state.placement_table.rows[tablet.id]
        whole = centre.book.complete(state, tablet, placed)
    assert sorted(whole) == sorted(each.uuid for each in pair)
    _next_life(centre)
    assert _doubted(centre) == []


def test_another_start_of_the_node_is_no_reason_to_count_a_copy_with_other_bytes(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    sound, other = pair
    good = centre.damage(other, physical)
    centre.evict()
    other.restart()
    centre.settle()
    assert centre.has(physical) == [sound.uuid]
    other.stop()
    _next_life(centre)
    other.start()
    centre.settle()
    assert centre.has(physical) == [sound.uuid]
    good.write_bytes(centre.contents[physical])
    centre.now += 601.0
    centre.settle()
    assert centre.has(physical) == [sound.uuid, other.uuid]


def test_a_node_that_lost_one_file_and_has_it_again_counts_for_that_and_for_no_other(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    """Of another one of the same tablet the master has seen other bytes, and it calls that good."""
    sound, liar = pair
    second = centre.load()
    centre.settle()
    for each in (physical, second):
        centre.damage(liar, each)
    centre.evict()
    assert centre.has(physical) == centre.has(second) == [sound.uuid]
    liar.doubted[:] = [each for each in liar.doubted if each[1] == physical]
    assert _looks(liar) == 1
    centre.settle()
    assert centre.has(physical) == [sound.uuid, liar.uuid]
    assert centre.has(second) == [sound.uuid]
    assert second in {name for _, name in liar.doubted}  # it is told once more
    assert _looks(liar) == 1
    centre.settle()
    assert centre.has(second) == [sound.uuid, liar.uuid]


def test_what_is_doubted_is_read_once_in_a_while_and_from_nobody_who_does_not_have_it(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    _, liar = pair
    centre.damage(liar, physical)
    centre.evict()
    for _ in range(3):
        centre.reader.run_once()
        centre.now += 100.0
    assert len(liar.doubted) == 2  # by the proof, and by the first reading
    liar.is_silent = True
    centre.now += 601.0
    assert centre.reader.run_once() == 0
    liar.is_silent = False
    centre.draining.add(liar.uuid)
    centre.engine.commit([records.FileDeleted(physical, "operator")])
    centre.engine.commit([records.FileForgotten(physical)])
    assert centre.reader.run_once() == 0
    assert len(liar.doubted) == 2


def test_a_doubt_that_cannot_be_committed_counts_at_once_and_is_committed_later(
    centre: ReleasingCentre,
    pair: tuple[Machine, Machine],
    physical: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound, other = pair
    tablet = centre.tablets()[0]

    def full(*_: object, **__: object) -> None:
        raise NoSpaceError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(centre.engine, "commit", full)
        centre.doubts.doubt(other.uuid, tablet, physical)
        assert centre.has(physical) == [sound.uuid]
        centre.doubts.trust(other.uuid, physical)
        assert centre.has(physical) == [sound.uuid, other.uuid]
        centre.doubts.doubt(other.uuid, tablet, physical)
    centre.doubts.doubt(other.uuid, tablet, "sequence/root.wind/0/0/9-9-0-0.tsfile")  # is none
    assert _doubted(centre) == [(other.uuid, physical)]
    with centre.engine.reading() as state:
        assert centre.doubts.of_node(state, other.uuid) == {physical: tablet}
    with monkeypatch.context() as patch:
        patch.setattr(centre.engine, "commit", full)
        centre.doubts.trust(other.uuid, physical)  # what cannot be said ends no doubt
    assert centre.has(physical) == [sound.uuid]


def test_whoever_takes_the_place_of_a_master_knows_which_copies_had_other_bytes(
    tmp_path: Path,
) -> None:
    there = TwoMasters(tmp_path, 2)
    try:
        first, second = there.masters
        first.world.load(NORTH, "sequence/root.wind/0/0/1-1-0-0.tsfile", build({}))
        with first.engine.reading() as state:
            (physical,), (tablet,) = state.files, state.tablet_table.rows
        for node in there.nodes:
            node.goes_on()
        first.copies.doubts.doubt(there.nodes[0].uuid, tablet, physical)
        first.die()
        there.pass_time(LEASE + 1)
        assert second.take_over()
        with second.engine.reading() as state:
            doubted = second.copies.doubts
            assert doubted.of_file(state, there.nodes[0].uuid, physical)
            assert not doubted.of_file(state, there.nodes[1].uuid, physical)
    finally:
        there.close()


def test_a_node_that_is_none_any_more_is_not_doubted(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    one, other = pair
    for each in pair:
        centre.doubts.doubt(each.uuid, centre.tablets()[0], physical)
    assert centre.doubts.count() == 2
    centre.engine.commit([records.NodeForgotten(one.uuid)])
    assert _doubted(centre) == [(other.uuid, physical)]


def test_whether_a_tablet_is_doubted_is_known_without_a_walk_over_what_else_a_node_is_doubted_for(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    """A node whose disk is bad has thousands; it is asked of each tablet of each look at all."""
    _, other = pair
    second = centre.load()
    centre.settle()
    (tablet,) = centre.tablets()

    def is_doubted() -> bool:
        with centre.engine.reading() as state:
            state.doubted_table.of_node = _walked  # type: ignore[method-assign]
            try:
                return centre.doubts.of_tablet(state, other.uuid, tablet)
            finally:
                del state.doubted_table.of_node

    seen = [is_doubted()]
    for name in (physical, second):
        centre.doubts.doubt(other.uuid, tablet, name)
        seen.append(is_doubted())
    for name in (physical, second):
        centre.doubts.trust(other.uuid, name)
        seen.append(is_doubted())
    assert seen == [False, True, True, True, False]


def _walked(node: str) -> dict[str, DoubtedCopyRow]:
    raise AssertionError(f"all doubts of {node} were walked over")


def test_a_node_that_does_not_answer_is_waited_for_once_in_a_look_at_what_is_doubted(
    centre: ReleasingCentre,
    pair: tuple[Machine, Machine],
    physical: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It keeps that of others waiting for a minute each time, and may be doubted for thousands."""
    one, other = pair
    names = [physical, centre.load(), centre.load()]
    centre.settle()
    (tablet,) = centre.tablets()
    for name in names:
        centre.doubts.doubt(one.uuid, tablet, name)
    centre.doubts.doubt(other.uuid, tablet, physical)
    asked: list[str] = []
    get = ReaderCalls.get

    def silent(calls: ReaderCalls, *rest: Any) -> bytes:
        asked.append(calls.url)
        if calls.url.endswith(one.host):
            raise UnreachableError("nobody answers")
        return get(calls, *rest)

    monkeypatch.setattr(ReaderCalls, "get", silent)
    assert centre.reader.run_once() == 1
    assert sorted(asked) == sorted(f"http://{each.host}" for each in pair)
    assert (other.uuid, physical) not in _doubted(centre)
    asked.clear()
    centre.now += 601.0
    centre.reader.run_once()
    assert asked == [f"http://{one.host}"]


@pytest.mark.parametrize("is_whole", [False, True])
def test_what_an_earlier_state_of_the_release_kept_in_a_file_is_doubted_still(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str, is_whole: bool
) -> None:
    one, other = pair
    second = centre.load()
    centre.settle()
    (tablet,) = centre.tablets()
    home = centre.root / "schema-of-then"
    home.mkdir()
    kept = home / "doubted-copies.json"
    centre.doubts.take_over(home)  # there is none
    of_node = {"boot": "b" * 32, "files": [[tablet, "" if is_whole else physical]]}
    gone = {"boot": "b" * 32, "files": [["f" * 32, ""], [tablet, physical]]}
    content = {"v": 1, "nodes": {other.uuid: of_node, "e" * 32: gone}}
    kept.write_bytes(msgspec.json.encode(content))
    centre.doubts.take_over(home)
    assert centre.has(physical) == [one.uuid]
    assert centre.has(second) == ([one.uuid] if is_whole else [one.uuid, other.uuid])
    assert not kept.exists()
    kept.write_bytes(b"{")
    centre.doubts.take_over(home)
    assert kept.exists()
