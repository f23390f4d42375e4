"""What a checkpoint holds, and that a restart shows the same with it, without it, and beside it."""

import pytest

from receiver.metadata.engine import Engine
from tests.support.asking import column, number, rows, run

STATEMENTS = [
    "set storage group to root.vehicle.d0",
    "set storage group to root.vehicle.d1",
    "create timeseries root.vehicle.d0.s0 with datatype=INT32, encoding=RLE",
    "create timeseries root.vehicle.d0.s1 with datatype=INT64, encoding=RLE",
    "create timeseries root.vehicle.d0.s2 with datatype=FLOAT, encoding=RLE",
    "create timeseries root.vehicle.d0.s3 with datatype=TEXT, encoding=PLAIN",
    "create timeseries root.vehicle.d0.s4 with datatype=BOOLEAN, encoding=PLAIN",
    "create timeseries root.vehicle.d1.s0(a0) with datatype=INT32, encoding=RLE tags(k=v)",
    "create timeseries root.vehicle.d1.s1 with datatype=TEXT, encoding=PLAIN attributes(a=b)",
    "create timeseries root.vehicle.d1.s2 with datatype=BOOLEAN, encoding=PLAIN",
    "set ttl to root.vehicle.d1 5000",
]
QUESTIONS = [
    "show timeseries",
    "show devices",
    "show storage group",
    "show ttl",
    "show child paths root.vehicle",
    "show tag keys",
    "show tag values",
    "count timeseries root group by level=2",
]


def answers(engine, at=None):
    return {sql: rows(engine, sql, at) for sql in QUESTIONS}


@pytest.mark.parametrize("after", range(len(STATEMENTS) + 1))
def test_a_restart_shows_the_same_wherever_the_checkpoint_was(home, engine, after):
    stamps = []
    for count, sql in enumerate(STATEMENTS):
        if count == after:
            run(engine, "create snapshot for schema")
        run(engine, sql)
        stamps.append((engine.newest_commit, answers(engine)))
    if after == len(STATEMENTS):
        run(engine, "create snapshot for schema")
    engine.close()
    assert list(home.glob("mtree.snapshot*"))
    with Engine.open(home) as again:
        assert number(again, "count timeseries") == 8
        assert answers(again) == stamps[-1][1]
        for ts, expected in stamps:
            assert answers(again, at=ts) == expected


def test_a_checkpoint_of_nothing_new_harms_nothing(home, engine):
    run(engine, *STATEMENTS)
    expected = answers(engine)
    for _ in range(4):
        run(engine, "create snapshot for schema")
    engine.close()
    for _ in range(3):
        with Engine.open(home) as again:
            assert answers(again) == expected


def test_checkpoints_do_not_pile_up(home, engine):
    for sql in STATEMENTS:
        run(engine, sql, "create snapshot for schema")
    assert len(list(home.glob("mtree.snapshot*"))) <= 2


def test_an_unfinished_checkpoint_is_swept_away(home, engine):
    run(engine, *STATEMENTS, "create snapshot for schema")
    expected = answers(engine)
    engine.close()
    there = next(home.glob("mtree.snapshot*"))
    half = there.read_bytes()[: there.stat().st_size // 2]
    (home / f".{there.name}.tmp").write_bytes(half)
    (home / f"{there.name}.tmp").write_bytes(half)
    with Engine.open(home) as again:
        assert answers(again) == expected


def test_deleted_groups_and_devices_stay_deleted(home, engine):
    run(engine, *STATEMENTS, "create snapshot for schema", "delete storage group root.vehicle.d1")
    assert column(engine, "show devices root.*.*") == ["root.vehicle.d0"]
    engine.close()
    with Engine.open(home) as again:
        assert column(again, "show storage group") == ["root.vehicle.d0"]
        assert column(again, "show devices root.*.*") == ["root.vehicle.d0"]
        assert column(again, "show tag keys") == []
        run(again, "create snapshot for schema")
    with Engine.open(home) as again:
        assert number(again, "count timeseries") == 5
