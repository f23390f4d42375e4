"""Aliases share one space with the names of a device."""

import pytest

from receiver.metadata.model import records
from receiver.metadata.model.errors import (
    AliasTakenError,
    SeriesExistsError,
    SeriesMissingError,
    SeriesNestedError,
)
from receiver.metadata.model.paths import IllegalPathError
from tests.support.committing import create, do, fresh, refuse, series

alias = records.AliasSet
gone = records.SeriesDeleted


@pytest.fixture
def state():
    state = fresh("root.sg")
    do(state, create("root.sg.d1", "s1", "s2", aliases=["temp", None]), create("root.sg.d1.sub.x"))
    return state


def test_a_series_is_found_by_both_names(state):
    find = state.schema.series.find
    assert find(("root", "sg", "d1", "temp")) == find(("root", "sg", "d1", "s1")) >= 0
    assert find(("root", "sg", "d1", "temp"), alias=False) == -1


@pytest.mark.parametrize(
    ("taken", "why"),
    [
        ("s2", "is a series there"),
        ("temp", "is the alias of a series there"),
        ("sub", "is a node there"),
        ("s3", "is the name of the series itself"),
    ],
)
def test_a_new_series_gets_no_alias_that_is_taken(state, taken, why):
    error = refuse(
        state,
        AliasTakenError,
        f"root.sg.d1.*{taken!r} {why}",
        create("root.sg.d1.s3", aliases=taken),
    )
    assert error.extra == {"path": "root.sg.d1", "name": taken}


def test_a_new_series_gets_no_name_that_is_an_alias(state):
    refuse(state, AliasTakenError, "'temp' is the alias of another", create("root.sg.d1.temp"))
    refuse(state, SeriesNestedError, "root.sg.d1.temp is the alias", create("root.sg.d1.temp.x"))


def test_names_and_aliases_of_one_operation_are_all_different(state):
    new = create("root.sg.d2", "a", "b", aliases=["x", "x"])
    refuse(state, AliasTakenError, "root.sg.d2.*'x' is twice", new)
    refuse(
        state,
        AliasTakenError,
        "'b' is a series of the same",
        create("root.sg.d2", "a", "b", aliases=["b", None]),
    )
    refuse(
        state,
        AliasTakenError,
        "'a' is a series of the same",
        create("root.sg.d2", "a", "b", aliases=[None, "a"]),
    )
    refuse(
        state,
        AliasTakenError,
        "'a' is the name of",
        create("root.sg.d2", "a", "b", aliases=["a", None]),
    )


def test_names_and_aliases_of_one_commit_are_all_different(state):
    first = create("root.sg.d2.a", aliases="x")
    refuse(state, AliasTakenError, "'x' is the alias", first, create("root.sg.d2.x"))
    refuse(state, AliasTakenError, "'x' is the alias", first, create("root.sg.d2.b", aliases="x"))
    refuse(state, AliasTakenError, "'a' is a series", first, create("root.sg.d2.b", aliases="a"))
    refuse(state, SeriesNestedError, "root.sg.d2.x is the alias", first, create("root.sg.d2.x.y"))
    refuse(state, AliasTakenError, "'x' is a node", create("root.sg.d2.x.y"), first)
    do(state, first, create("root.sg.d3.b", aliases="x"))
    assert series(state, "root.sg.*.*")[2:] == ["root.sg.d2.a(x)", "root.sg.d3.b(x)"]


@pytest.mark.parametrize(
    ("new", "why"),
    [
        ("s2", "is a series there"),
        ("sub", "is a node there"),
        ("s1", "is the name of the series itself"),
    ],
)
def test_an_alias_is_not_changed_to_one_that_is_taken(state, new, why):
    refuse(state, AliasTakenError, f"{new!r} {why}", alias("root.sg.d1.s1", new))
    refuse(state, AliasTakenError, "'temp' is the alias", alias("root.sg.d1.s2", "temp"))


def test_an_alias_is_changed_and_taken_away(state):
    before = state.newest
    do(state, alias("root.sg.d1.s1", "temp"))
    do(state, alias("root.sg.d1.s1", "t2"))
    assert series(state, "root.sg.d1.*") == ["root.sg.d1.s1(t2)", "root.sg.d1.s2"]
    do(state, alias("root.sg.d1.s2", "temp"))
    do(state, alias("root.sg.d1.s1", None), alias("root.sg.d1.s1", None))
    assert series(state, "root.sg.d1.*") == ["root.sg.d1.s1", "root.sg.d1.s2(temp)"]
    assert series(state, "root.sg.d1.*", before) == ["root.sg.d1.s1(temp)", "root.sg.d1.s2"]
    do(state, create("root.sg.d1.t2"))


def test_what_a_commit_frees_may_be_taken_in_it(state):
    do(state, alias("root.sg.d1.s1", "t2"), create("root.sg.d1.temp"))
    assert series(state, "root.sg.d1.*") == [
        "root.sg.d1.s1(t2)",
        "root.sg.d1.s2",
        "root.sg.d1.temp",
    ]
    do(
        state,
        alias("root.sg.d1.s1", "t3"),
        alias("root.sg.d1.s2", "t2"),
        alias("root.sg.d1.s1", "t4"),
    )
    assert series(state, "root.sg.d1.s*") == ["root.sg.d1.s1(t4)", "root.sg.d1.s2(t2)"]
    do(state, gone("root.sg.d1.s1"), create("root.sg.d1.t4.x"))
    do(state, create("root.sg.d9.a", aliases="b"), gone("root.sg.d9.a"), create("root.sg.d9.b"))
    assert series(state, "root.sg.d9.*") == ["root.sg.d9.b"]
    refuse(
        state,
        AliasTakenError,
        "'t2'",
        alias("root.sg.d1.s2", "t5"),
        alias("root.sg.d1.s2", "t2"),
        create("root.sg.d1.t2"),
    )


def test_an_alias_goes_with_its_series(state):
    do(state, gone("root.sg.d1.s1"))
    assert state.schema.series.find(("root", "sg", "d1", "temp")) == -1
    do(state, create("root.sg.d1.temp"))
    refuse(state, SeriesExistsError, "root.sg.d1.temp", create("root.sg.d1.temp"))


def test_an_alias_is_a_name(state):
    refuse(state, IllegalPathError, "root.sg.d1.s2", alias("root.sg.d1.s2", ""))
    refuse(state, IllegalPathError, "root.sg.d2", create("root.sg.d2.s2", aliases=""))


@pytest.mark.parametrize("path", ["root.sg.d1.s9", "root.sg.d1", "root.sg", "root.sg.d1.temp"])
def test_only_a_series_has_one_and_records_name_it_by_its_name(state, path):
    refuse(state, SeriesMissingError, path, alias(path, "x"))
