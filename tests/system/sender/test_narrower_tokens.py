"""A sender whose token was exchanged for one that covers less of what it has listed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from common.config.loaded_values import Secret
from receiver.operator.edges.tokens import make_token
from tests.support.oracle import Oracle, oracle


@pytest.fixture(params=["replaced", "all"])
def world(request, tmp_path):
    with oracle(tmp_path, request.param) as made:
        for time in range(3):
            for series in "ab":  # a file of each device
                made.database.write(series, time)
                made.database.close(made.database.opened()[0])
        yield made


def comes_with(world: Oracle, *scope: str) -> None:
    token = make_token(world.host.node.engine, "sender", sender=world.edge.uuid, scope=scope)
    entry = replace(world.edge.config.receivers[0], token=Secret(token.token))
    world.edge.with_settings(receivers=(entry,))


def test_what_it_has_listed_stays_listed_and_nothing_is_compared_for_it(world):
    assert world.round().sent == 6
    comes_with(world, "root.e.a")
    for _ in range(2):
        assert world.round().quiet
    assert len(world.view().visible) == 6


def test_after_its_list_was_lost_it_keeps_what_is_covered_and_loses_nothing(world):
    assert world.round().sent == 6
    before = world.answer()
    comes_with(world, "root.e.a")
    world.database.remove(world.database.closed()[-1:])
    for found in world.edge.root.glob("**/sync-sender/*/*"):
        if found.is_file():
            found.unlink()
    for _ in range(3):
        report = world.round()
        assert (report.error, report.lost, report.retired, report.sent) == (None, [], 0, 0)
        assert world.answer() == before
    comes_with(world)
    for _ in range(3):
        report = world.round()
    assert (report.error, report.lost, report.conflicts, report.failed) == (None, [], [], [])
    assert world.answer().keys() >= world.database.answer().keys()
    assert world.round().quiet
