"""What is taken of a single new series at once is what the rules take of it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from common.errors import TsferryError
from receiver.metadata.commit.series_rules.plain_series import takes_plain_series
from receiver.metadata.commit.series_rules.schema_rules import SchemaRules
from receiver.metadata.commit.touched import Touched
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.sql.executing import execute

DEVICES = (
    *("root.g.d", "root.g.al", "root.g.new", "root.g", "root.gone.d", "root.none.d", "root"),
    *("root.g.d.s", "root.g.d.alias", "root.g.emptied", "root.g.`d`", "root.g." + "x" * 2000),
)
NAMES = (("new",), ("s",), ("alias",), ("sub",), ("",), ("a", "b"), ("y" * 2000,), ("a.b",))
CODES = ((3, 8, 1), (3, 99, 1), (77, 0, 1))
OPTIONAL = (
    {},
    {"aliases": ("z",)},
    {"aliases": (None,)},
    {"tags": ({"unit": "C"},)},
    {"attributes": ({"at": "x"},)},
    {"tags": ()},
    {"props": ({"p": "q"},)},
)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    opened = Engine.open(tmp_path, background=False)
    for statement in (
        "set storage group to root.g",
        "set storage group to root.gone",
        "create timeseries root.g.d.s(alias) with datatype=FLOAT",
        "create timeseries root.g.d.sub.s with datatype=FLOAT",
        "create timeseries root.gone.d.s with datatype=FLOAT",
        "create timeseries root.g.emptied.s with datatype=FLOAT",
        "create aligned timeseries root.g.al(s FLOAT)",
        "delete timeseries root.g.emptied.s",
        "delete storage group root.gone",
    ):
        execute(opened, statement)
    return opened


Refused = tuple[type[TsferryError], str]


def examined(rules: SchemaRules, op: records.SeriesCreated) -> tuple[Touched, Refused | None]:
    """By the rules; behind it the place of the device is known."""
    try:
        rules.series_created(op)
    except TsferryError as error:
        return rules.touched, (type(error), error.message)
    return rules.touched, None


def test_what_is_taken_at_once_the_rules_take_and_note_the_same(engine: Engine) -> None:
    taken = 0
    with engine, engine.reading() as state:
        for device, names, codes, optional, aligned in itertools.product(
            DEVICES, NAMES, CODES, OPTIONAL, (False, True)
        ):
            columns = (bytes([code]) * len(names) for code in codes)
            op = records.SeriesCreated(device, names, *columns, aligned=aligned, **optional)
            by_rules, refused = examined(SchemaRules(state.schema, Touched(), keeps=False), op)
            at_once = Touched()
            try:
                takes: bool | Refused = takes_plain_series(state.schema, op, at_once)
            except TsferryError as error:
                takes = type(error), error.message
            if takes is True:
                assert (refused, at_once) == (None, by_rules)
                taken += 1
            else:
                assert at_once == Touched()
                assert takes in (False, refused)
    assert taken == 6
