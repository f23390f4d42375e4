"""Storage groups and their TTL: none lies in another, and what is not there is an error."""

import pytest

from common.errors import NotFoundError
from receiver.metadata.commit.draft import examine
from receiver.metadata.model import records
from receiver.metadata.model.errors import (
    RefusedCommitError,
    SeriesMissingError,
    StorageGroupExistsError,
    StorageGroupMissingError,
    StorageGroupNestedError,
    TtlRefusedError,
)
from receiver.metadata.model.paths import IllegalPathError
from tests.support.committing import create, do, fresh, groups, refuse, series

put = records.StorageGroupSet
drop = records.StorageGroupDeleted
ttl = records.TtlSet


@pytest.fixture
def state():
    return fresh("root.laptop.d1", "root.turbine")


def test_one_is_there_once(state):
    error = refuse(state, StorageGroupExistsError, "root.turbine is there", put("root.turbine"))
    assert error.extra["path"] == "root.turbine"
    refuse(state, StorageGroupExistsError, "root.new", put("root.new"), put("root.new"))
    assert groups(state) == ["root.laptop.d1", "root.turbine"]


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("root.laptop.d1.a", "root.laptop.d1"),
        ("root.laptop.d1.a.b", "root.laptop.d1"),
        ("root.laptop", "root.laptop.d1"),
        ("root.turbine.x", "root.turbine"),
    ],
)
def test_none_lies_in_another_whichever_comes_first(state, path, other):
    error = refuse(state, StorageGroupNestedError, f"{path} would .* {other}", put(path))
    assert error.extra == {"path": path, "other": other}


def test_none_lies_in_another_of_the_same_commit(state):
    refuse(state, StorageGroupNestedError, "root.new.a", put("root.new"), put("root.new.a"))
    refuse(state, StorageGroupNestedError, "root.new.a", put("root.new.a.b"), put("root.new.a"))
    do(state, put("root.new.a"), put("root.new.b"), put("root.news"))
    assert groups(state)[1:] == ["root.new.a", "root.new.b", "root.news", "root.turbine"]


def test_root_itself_is_none(state):
    refuse(state, StorageGroupNestedError, r"root.<name>", put("root"))


@pytest.mark.parametrize(
    "path", ["", "turbine", "root.", "root..a", "root.*", "root.a b", "root.1"]
)
def test_its_path_is_one_in_its_stored_form(state, path):
    for op in (put(path), drop(path), ttl(path, 1)):
        refuse(state, IllegalPathError, "illegal path", op)


@pytest.mark.parametrize("name", ["a\nb", "a\x00", "\x7f", "a\u2028b", "\x9b"])
def test_a_name_from_elsewhere_may_have_control_characters(state, name):
    do(state, put(f"root.`{name}`"))
    assert f"root.`{name}`" in groups(state)


def test_where_one_is_enough_nothing_happens(state):
    do(state, put("root.turbine", if_missing=True), put("root.turbine.a.b", if_missing=True))
    assert groups(state) == ["root.laptop.d1", "root.turbine"]
    refuse(state, StorageGroupNestedError, "root.laptop", put("root.laptop", if_missing=True))
    do(state, put("root.new", if_missing=True), put("root.new.x", if_missing=True))
    assert groups(state) == ["root.laptop.d1", "root.new", "root.turbine"]


def test_a_deleted_one_goes_with_all_below_it_and_may_come_again(state):
    do(state, create("root.turbine.d1.s1"), create("root.turbine.d2.s1"))
    do(state, create("root.laptop.d1.s1"))
    do(state, drop("root.turbine"))
    assert groups(state) == ["root.laptop.d1"]
    assert series(state) == ["root.laptop.d1.s1"]
    refuse(state, StorageGroupMissingError, "root.turbine", create("root.turbine.d1.s1"))
    do(state, put("root.turbine"))
    assert series(state) == ["root.laptop.d1.s1"]
    do(state, drop("root.turbine"), drop("root.laptop.d1"), put("root.laptop"))
    assert groups(state) == ["root.laptop"]
    assert series(state) == []


@pytest.mark.parametrize("path", ["root.other", "root.laptop", "root.turbine.d1", "root"])
def test_what_is_none_cannot_be_deleted_nor_have_a_ttl(state, path):
    do(state, create("root.turbine.d1.s1"))
    for op in (drop(path), ttl(path, 5)):
        error = refuse(state, StorageGroupMissingError, f"no storage group {path}", op)
        assert isinstance(error, NotFoundError)
        assert isinstance(error, RefusedCommitError)
        assert error.http_status == 404
    refuse(
        state, StorageGroupMissingError, "root.turbine", drop("root.turbine"), drop("root.turbine")
    )


@pytest.mark.parametrize("value", [0, -1, -(1 << 63), 1 << 63, 1 << 64])
def test_a_ttl_is_a_positive_number_of_milliseconds(state, value):
    error = refuse(
        state, TtlRefusedError, rf"root.turbine: a TTL of {value} ms", ttl("root.turbine", value)
    )
    assert error.extra["path"] == "root.turbine"


def test_a_ttl_is_set_and_taken_away(state):
    do(state, ttl("root.turbine", (1 << 63) - 1))
    assert state.schema.groups.ttl(("root", "turbine")) == (1 << 63) - 1
    do(state, ttl("root.turbine", 1), ttl("root.laptop.d1", 2))
    assert state.schema.groups.ttl(("root", "turbine")) == 1
    do(state, ttl("root.turbine", None))
    assert state.schema.groups.ttl(("root", "turbine")) is None
    assert state.schema.groups.ttl(("root", "laptop", "d1")) == 2
    do(state, put("root.new"), ttl("root.new", 7))
    assert state.schema.groups.ttl(("root", "new")) == 7


def test_what_is_deleted_in_a_commit_is_not_there_for_what_follows(state):
    do(state, create("root.turbine.d1.s1"))
    refuse(
        state,
        StorageGroupMissingError,
        "root.turbine",
        drop("root.turbine"),
        ttl("root.turbine", 1),
    )
    refuse(
        state,
        StorageGroupMissingError,
        "root.turbine.d1 lies in no storage group",
        drop("root.turbine"),
        create("root.turbine.d1.s2"),
    )
    refuse(
        state,
        SeriesMissingError,
        "root.turbine.d1.s1",
        drop("root.turbine"),
        records.SeriesDeleted("root.turbine.d1.s1"),
    )
    do(state, drop("root.turbine"), put("root.turbine.d1"), create("root.turbine.d1.s1"))
    assert groups(state) == ["root.laptop.d1", "root.turbine.d1"]
    assert series(state) == ["root.turbine.d1.s1"]


def test_only_what_changes_the_groups_is_a_batch_of_its_own(state):
    for op in (put("root.new"), drop("root.turbine")):
        assert examine(state, [op]).exclusive
    for op in (put("root.turbine", if_missing=True), ttl("root.turbine", 1)):
        assert not examine(state, [op]).exclusive
