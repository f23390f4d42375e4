"""A node that gives other bytes than a file has: it counts no more, and nobody's good copy goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.durable import Tree
from common.errors import NoSpaceError
from receiver.metadata.model import records
from receiver.placement.held_copies import HeldCopiesBook
from receiver.placement.kept_doubts import KeptDoubts
from receiver.tablet_copies.copies_wire import FilePlace
from receiver.tablet_copies.copy_scrub import CopyScrub
from tests.support.copy_nodes import Machine
from tests.support.releasing_centre import ReleasingCentre
from tests.support.spark_world import World


@pytest.fixture
def centre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReleasingCentre]:
    centre = ReleasingCentre(tmp_path, monkeypatch)
    centre.back.doubted = lambda place, name: centre.book.doubt(_at(centre, place), "", name)
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
    assert bad.uuid in [each.uuid for each in pair if centre.book.doubted(each.uuid)]


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
    """By its full report, whatever the master has kept."""
    sound, rotten = pair
    centre.damage(rotten, physical)
    centre.evict()
    assert _looks(rotten) == 1
    rotten.is_silent = True
    (centre.world.root / "schema" / "doubted-copies.json").unlink()
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
    assert centre.book.doubted(liar.uuid)
    centre.end(physical, forget=False)
    centre.settle()
    assert centre.book.doubted(liar.uuid)  # it may come back
    centre.engine.commit([records.FileForgotten(physical)])
    centre.settle()
    assert physical not in liar.names()
    with centre.engine.reading() as state:
        (tablet,) = state.tablet_table.rows.values()
        placed = state.placement_table.rows[tablet.id]
        whole = centre.book.complete(state, tablet, placed)
    assert sorted(whole) == sorted(each.uuid for each in pair)
    _next_life(centre)
    assert centre.book.doubted(liar.uuid) == []


def test_another_start_of_the_node_while_the_master_was_down_is_looked_at_anew(
    centre: ReleasingCentre, pair: tuple[Machine, Machine], physical: str
) -> None:
    """As while it was up."""
    _, other = pair
    centre.book.started(other.uuid, other.view().boot)
    centre.book.doubt(other.uuid, centre.tablets()[0], physical)
    assert centre.book.doubted(other.uuid)
    other.restart()
    _next_life(centre)
    assert centre.book.doubted(other.uuid) == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"v": 1, "nodes": [3]}', b"\xff"])
def test_doubts_that_cannot_be_read_keep_no_master_from_its_work(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "doubted-copies.json").write_bytes(content)
    book = HeldCopiesBook(KeptDoubts(tmp_path))
    book.started("n", "b")
    book.doubt("n", "t", "f")
    again = HeldCopiesBook(KeptDoubts(tmp_path))
    assert again.doubted("n") == [("t", "f")]
    again.trust("n", "t", "f")
    assert HeldCopiesBook(KeptDoubts(tmp_path)).doubted("n") == []


def test_of_a_node_with_very_many_copies_with_other_bytes_none_counts_for_the_next_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is bad perhaps; not all are kept by name, so of their tablets no file counts."""
    monkeypatch.setattr("receiver.placement.kept_doubts._MOST", 3)
    book = HeldCopiesBook(KeptDoubts(tmp_path))
    book.started("n", "b")
    for number in range(6):
        book.doubt("n", f"t{number % 2}", f"f{number}")
    again = HeldCopiesBook(KeptDoubts(tmp_path))
    again.started("n", "b")
    assert all(again.is_doubted("n", f"t{each % 2}", f"f{each}") for each in range(6))
    assert not again.is_doubted("n", "t2", "f")
    again.trust("n", "t0", "f0")
    assert again.is_doubted("n", "t0", "f2")
    again.forget_files(again.doubted_files())
    again.not_complete("n", ["t0"])  # and it has all of it anew
    assert [again.is_doubted("n", each) for each in ("t0", "t1")] == [False, True]
    assert HeldCopiesBook(KeptDoubts(tmp_path)).doubted("n") == [("t1", "")]


def test_a_full_disk_keeps_no_doubt_from_counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = HeldCopiesBook(KeptDoubts(tmp_path))
    book.started("n", "b")

    def full(*_: object, **__: object) -> None:
        raise NoSpaceError("no space left")

    monkeypatch.setattr(Tree, "write_atomic", full)
    book.doubt("n", "t", "f")
    assert book.is_doubted("n", "t", "f")
