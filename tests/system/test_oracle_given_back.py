"""Devices that go to another edge and come back, in the shortest histories that went wrong.

Two edges with databases of their own, which may give their files the same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common import crash
from sender.round.round_words.round_report import RoundReport
from sender.send.calls import Client
from tests.support.edge_shapes import Key
from tests.support.oracle_transfers import TransferLife, TransferPlay, shared_centre

MODES = ["replaced", "never"]


@pytest.fixture(params=MODES)
def life(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TransferLife]:
    with shared_centre(tmp_path, request.param, 0) as made:
        for play in made.plays:
            play.database.clock = 0
        yield made


def closed(play: TransferPlay, *keys: Key) -> None:
    """A file with points, which a round brings."""
    base = play.database
    base.writes = max(each.database.writes for each in play.life.plays)
    for series, time in keys:
        base.write(series, time)
    base.close(*base.opened())
    rounded(play)


def rounded(play: TransferPlay) -> RoundReport:
    report = play.world.round()
    assert (report.error, report.held, report.pending_files) == (None, [], 0)
    assert play.world.read() == play.world.answer()
    return report


def with_the_name_of_the_next(life: TransferLife) -> None:
    """The second edge, whose device it is by now, deletes points beside a file of that name."""
    one, two = life.plays
    closed(one, ("a", 1))
    life.transfer("a", two)
    closed(two, ("b", 3))
    closed(two, ("a", 4), ("a", 5))
    two.database.delete("a", 0, 4)
    rounded(two)
    assert two.world.read().keys() == {("a", 5), ("b", 3)}, "the first one is its predecessor"


def test_what_another_owner_deleted_is_not_deleted_of_a_later_file_of_that_name(life):
    with_the_name_of_the_next(life)
    one, two = life.plays
    life.transfer("a", one)
    closed(one, ("a", 4), ("a", 6))
    assert one.world.read() == two.database.answer() | one.database.answer()


def test_what_another_owner_deleted_stays_so_in_what_its_first_owner_has_no_more(life):
    with_the_name_of_the_next(life)
    one, two = life.plays
    one.database.remove(one.database.closed())
    life.transfer("a", one)
    rounded(one)
    one.database.versions = {0: 1}
    closed(one, ("a", 4), ("a", 6))
    assert one.world.read() == two.database.answer() | one.database.answer()


def test_what_another_owner_deleted_stays_so_when_an_open_file_of_that_name_has_deletions(life):
    with_the_name_of_the_next(life)
    one, two = life.plays
    one.database.write("b", 7)
    one.database.flush(*one.database.opened())
    one.database.delete("b", 7, 7)
    assert one.world.round().error is None
    assert ("a", 1) not in two.world.read()


def reaped(life: TransferLife) -> None:
    """What the first edge had of a device is superseded and forgotten, then it has it again."""
    one, two = life.plays
    closed(one, ("a", 1))
    life.transfer("a", two)
    rounded(one)
    closed(two, ("a", 1), ("a", 2))
    assert life.host.prove() == 1
    assert life.host.reap() == 1
    life.transfer("a", one)


@pytest.mark.parametrize("life", ["replaced"], indirect=True)
def test_what_left_the_disk_while_its_device_was_anothers_is_sent_again(life):
    reaped(life)
    one, two = life.plays
    assert rounded(one).sent == 1
    assert one.world.read() == {**two.database.answer(), **one.database.answer()}
    assert rounded(one).sent == 0


@pytest.mark.parametrize("life", ["replaced"], indirect=True)
def test_what_left_the_disk_and_is_gone_when_its_device_comes_back_is_not_lost(life):
    reaped(life)
    one, two = life.plays
    one.database.remove(one.database.closed())
    for _ in range(2):
        assert rounded(one).lost == []
    assert one.world.read() == two.database.answer()


@pytest.mark.parametrize("life", ["replaced"], indirect=True)
def test_all_is_compared_once_for_a_device_that_came_back(life, monkeypatch):
    reaped(life)
    one, _ = life.plays
    asked = []
    inventory = Client.inventory

    def counted(client, *, of=None):
        asked.append(client)
        return inventory(client, of=of)

    monkeypatch.setattr(Client, "inventory", counted)
    for _ in range(3):
        rounded(one)
    assert len(asked) == 1


def test_what_is_deleted_once_a_device_came_back_in_the_middle_of_a_round(life):
    one, two = life.plays
    closed(one, ("a", 1))
    life.transfer("a", two)
    rounded(one)

    def back(point: str) -> None:
        if point == "round.recovered":
            life.transfer("a", one)

    with crash.arm(back):
        assert rounded(one).already == 1
    base = one.database
    base.write("a", 2)
    base.close(*base.opened())
    base.remove(base.closed()[:1])
    base.delete("a", 0, 2)
    rounded(one)
    assert one.world.read() == base.answer() == {}


def test_who_comes_first_where_a_device_was_released_stands_above(life):
    one, two = life.plays
    for time in (1, 2):
        closed(one, ("a", time))
    life.release("a")
    closed(two, ("a", 2))
    assert two.world.read() == {**one.database.answer(), **two.database.answer()}
