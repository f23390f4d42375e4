"""TTL of storage groups: set, changed, taken away, shown; never of anything else."""

import pytest

from common.errors import NotFoundError
from receiver.metadata.engine import Engine
from tests.support.asking import refused, rows, run


@pytest.fixture(autouse=True)
def groups(engine):
    run(engine, "set storage group to root.group1, root.group2")


def ttl(engine, which="", at=None):
    return [tuple(row.values()) for row in rows(engine, f"show ttl {which}", at)]


def test_there_is_none_until_it_is_set(engine):
    assert ttl(engine) == [("root.group1", None), ("root.group2", None)]
    run(engine, "set ttl to root.group1 10000")
    assert ttl(engine) == [("root.group1", 10000), ("root.group2", None)]
    assert ttl(engine, "on root.group1") == [("root.group1", 10000)]
    assert [tuple(row.values()) for row in rows(engine, "show all ttl")] == ttl(engine)


def test_it_is_changed_and_taken_away_and_the_past_keeps_it(engine):
    run(engine, "set ttl to root.group1 10000")
    first = engine.newest_commit
    run(engine, "set ttl to root.group1 5")
    second = engine.newest_commit
    run(engine, "unset ttl to root.group1")
    assert ttl(engine, "on root.group1") == [("root.group1", None)]
    assert ttl(engine, "on root.group1", first) == [("root.group1", 10000)]
    assert ttl(engine, "on root.group1", second) == [("root.group1", 5)]


def test_it_needs_a_storage_group(engine):
    refused(engine, "set ttl to root.group3 1000", "root.group3", kind=NotFoundError)
    refused(engine, "unset ttl to root.group3", "root.group3", kind=NotFoundError)
    run(engine, "create timeseries root.group1.s1 with datatype=INT64, encoding=PLAIN")
    refused(engine, "set ttl to root.group1.s1 1000", "root.group1.s1")
    refused(engine, "set ttl to root 1000", "root")


@pytest.mark.parametrize("value", ["0", "-1", "9223372036854775808", "soon", "1.5", ""])
def test_what_is_no_time_is_refused(engine, value):
    refused(engine, f"set ttl to root.group1 {value}")
    assert ttl(engine, "on root.group1") == [("root.group1", None)]


def test_it_survives_a_restart_and_a_checkpoint(engine, home):
    run(engine, "set ttl to root.group1 10000", "create snapshot for schema")
    run(engine, "set ttl to root.group2 9223372036854775807")
    engine.close()
    with Engine.open(home) as again:
        assert ttl(again) == [("root.group1", 10000), ("root.group2", 9223372036854775807)]
