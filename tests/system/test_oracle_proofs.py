"""What is proved of files that ended, and what becomes of it, judged by the oracle."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.edge_shapes import ALIGNED, BINARY, PLAIN, ROW, TABLE, Key
from tests.support.oracle import Oracle, killable, oracle
from tests.support.oracle_deaths import DeadlyPlay
from tests.support.oracle_play import WrongAnswer


def brought(world: Oracle, *keys: Key) -> None:
    """A file with points, which a round brings."""
    for series, time in keys:
        world.database.write(series, time)
    for file in world.database.opened():
        world.database.close(file)
    assert world.round().error is None


def freed(world: Oracle) -> None:
    """The edge has nothing any more."""
    world.database.remove(world.database.closed())
    assert world.round().error is None


@pytest.mark.parametrize(
    ("shape", "lower", "upper", "rest"),
    [
        (PLAIN, [("a", 1), ("a", 2)], [("a", 1), ("a", 3)], ("a", 2)),
        (ALIGNED, [("b", 1), ("a", 2)], [("a", 1), ("a", 2), ("b", 2)], ("b", 1)),
        (TABLE, [("b", 1), ("a", 2)], [("a", 1), ("a", 2), ("b", 2)], ("b", 1)),
        (TABLE, [("a", 1), (ROW, 2)], [("a", 1), ("a", 3)], (ROW, 2)),
    ],
    ids=["times", "nulls", "nulls of tables", "rows of tables"],
)
def test_a_file_is_left_out_when_every_point_of_it_is_given_and_not_before(
    shape, lower: Sequence[Key], upper: Sequence[Key], rest: Key, tmp_path
):
    with oracle(tmp_path, shape=shape) as world:
        brought(world, *lower)
        freed(world)
        brought(world, *upper)
        before = world.answer()
        assert rest in before
        assert world.host.prove() == 0
        brought(world, rest)
        assert world.host.prove() == 1
        assert world.answer().keys() == before.keys()


@pytest.mark.parametrize("shape", [PLAIN, BINARY], ids=["text deletions", "binary deletions"])
def test_what_a_rotten_file_had_superseded_comes_back_until_it_is_sent_again(shape, tmp_path):
    with killable(tmp_path) as host:
        world = Oracle(tmp_path, "replaced", host, shape)
        brought(world, ("a", 1), ("b", 1))
        older = world.answer()
        freed(world)
        brought(world, ("a", 1), ("b", 1))
        newer = world.answer()
        assert world.host.prove() == 1
        play = DeadlyPlay(world, host, 0)
        (row,) = (row for row in world.view().visible if not row.retired)
        play.rot(row)
        play.find_rot(by_verification=shape is PLAIN)
        assert world.answer() == older
        assert world.round().sent == 1
        assert world.answer() == newer
        play.settle()


def test_the_end_sees_what_nobody_needs(tmp_path):
    with killable(tmp_path) as host:
        world = Oracle(tmp_path, "replaced", host)
        brought(world, ("a", 1))
        brought(world, ("b", 1))
        play = DeadlyPlay(world, host, 0)
        play.settle()
        (first, *_) = (row.physical for row in world.view().visible)
        where = host.config.data_dirs[0] / first
        where.with_name("1-1-0-0.tsfile").write_bytes(where.read_bytes())
        with pytest.raises(WrongAnswer, match="nobody needs"):
            play.on_disk()
