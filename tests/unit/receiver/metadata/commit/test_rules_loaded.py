"""What a loaded file has of series: missing ones are made, another type is a conflict."""

import pytest

from common.errors import ConflictError
from common.tsfile.layout import DataType
from receiver.metadata.commit.draft import examine
from receiver.metadata.model import records
from receiver.metadata.model.errors import (
    RefusedCommitError,
    SchemaConflictError,
    StorageGroupMissingError,
)
from tests.support.committing import create, do, fresh, refuse, series
from tests.support.metadata import A, B, load, path, physical, seen

P = path()
PHYS = physical(P, 1)
INT32, INT64, TEXT = DataType.INT32, DataType.INT64, DataType.TEXT


def device(name, *names, types=None, lasts=None, aligned=False):
    count = len(names)
    return records.LoadedDevice(
        name, aligned, names, bytes(types or [INT32] * count), bytes([0] * count),
        bytes([1] * count), lasts or [5] * count,
    )  # fmt: skip


def loaded(*devices, of=PHYS):
    return records.SeriesLoaded(of, devices)


@pytest.fixture
def state():
    state = fresh("root.sg")
    do(state, seen(), seen(B))
    do(state, load())
    return state


def test_what_is_missing_is_made_and_the_file_is_registered(state):
    do(state, create("root.sg.d1.s1"))
    assert not state.files[PHYS].registered
    ts = do(state, loaded(device("root.sg.d1", "s1", "s2"), device("root.sg.d2", "s1")))
    assert series(state) == ["root.sg.d1.s1", "root.sg.d1.s2", "root.sg.d2.s1"]
    assert (
        state.schema.series.describe(state.schema.series.find(("root", "sg", "d1", "s2"))).created
        == ts
    )
    assert state.files[PHYS].registered
    do(state, records.FileRetired(PHYS))
    assert state.files[PHYS].registered


def test_a_load_again_changes_nothing_but_the_newest_times(state):
    do(state, loaded(device("root.sg.d1", "s1", lasts=[5])))
    do(state, loaded(device("root.sg.d1", "s1", lasts=[3])))
    row = state.schema.series.find(("root", "sg", "d1", "s1"))
    assert state.schema.series.heat(row) == 5
    do(state, loaded(device("root.sg.d1", "s1", lasts=[None])))
    do(state, loaded(device("root.sg.d1", "s1", lasts=[9])))
    assert state.schema.series.heat(row) == 9


@pytest.mark.parametrize("place", [0, 1, 149])
def test_another_type_is_a_conflict_that_names_file_series_and_both_types(state, place):
    names = [f"s{each}" for each in range(150)]
    do(state, create("root.sg.d1", *names))
    types = [INT32] * 150
    types[place] = TEXT
    whole = device("root.sg.d1", *names, "more", types=[*types, INT32])
    match = f"{P}: the series root.sg.d1.s{place} has the type TEXT .*INT32"
    op = loaded(device("root.sg.d0", "new"), whole)
    error = refuse(state, SchemaConflictError, match, op)
    assert isinstance(error, ConflictError)
    assert error.extra == {
        "path": P,
        "sender": A,
        "series": f"root.sg.d1.s{place}",
        "expected": "INT32",
        "found": "TEXT",
    }


def test_two_files_of_a_commit_that_contradict_each_other_are_a_conflict(state):
    other = path("2-1-0")
    do(state, load(other, 2))
    refuse(
        state, SchemaConflictError, f"{other}: the series root.sg.d1.s2 .*INT64 .*INT32",
        loaded(device("root.sg.d1", "s1", "s2")),
        loaded(device("root.sg.d1", "s2", types=[INT64]), of=physical(other, 2)),
    )  # fmt: skip
    refuse(
        state, SchemaConflictError, "root.sg.d1.s1", create("root.sg.d1.s1"),
        loaded(device("root.sg.d1", "s1", types=[INT64])),
    )  # fmt: skip
    do(
        state,
        loaded(device("root.sg.d1", "s1")),
        loaded(device("root.sg.d1", "s1", "s2"), of=physical(other, 2)),
    )
    assert series(state) == ["root.sg.d1.s1", "root.sg.d1.s2"]


def test_a_series_that_the_commit_deletes_may_come_with_another_type(state):
    do(state, create("root.sg.d1", "s1", "s2"))
    gone = records.SeriesDeleted("root.sg.d1.s1")
    do(state, gone, loaded(device("root.sg.d1", "s1", "s2", types=[TEXT, INT32])))
    assert state.schema.series.type_of(state.schema.series.find(("root", "sg", "d1", "s1"))) == TEXT


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (create("root.sg.d1.s1"), device("root.sg.d1.s1", "x")),
        (create("root.sg.d1.s1.x"), device("root.sg.d1", "s1")),
        (create("root.sg.d1.s1", aliases="t"), device("root.sg.d1", "t")),
        (create("root.sg.d1.s1", aliases="t"), device("root.sg.d1.t", "x")),
    ],
)
def test_what_cannot_stand_in_the_tree_is_a_conflict_too(state, first, then):
    refuse(state, SchemaConflictError, P, first, loaded(then))
    do(state, first)
    error = refuse(state, SchemaConflictError, P, loaded(then))
    assert error.extra["series"] == then.device


def test_devices_of_one_file_may_not_stand_in_each_other(state):
    both = (device("root.sg.d1", "s1"), device("root.sg.d1.s1", "x"))
    refuse(state, SchemaConflictError, P, loaded(*both))
    refuse(state, SchemaConflictError, P, loaded(*both[::-1]))


def test_the_storage_group_must_be_there(state):
    op = loaded(device("root.other.d1", "s1"))
    refuse(state, StorageGroupMissingError, "root.other.d1", op)
    do(state, records.StorageGroupSet("root.other", if_missing=True), op)
    assert series(state) == ["root.other.d1.s1"]


def test_the_file_must_be_there(state):
    op = loaded(device("root.sg.d1", "s1"), of=physical(P, 7))
    refuse(state, RefusedCommitError, "there is no file", op)
    do(state, records.FileDeleted(PHYS, "gone"))
    refuse(state, RefusedCommitError, "is deleted", loaded(device("root.sg.d1", "s1")))
    do(state, load(P, 7), op)
    assert state.files[physical(P, 7)].registered


def test_types_that_a_file_has_are_taken_as_they_are(state):
    table = r"root.`/plant`.sensors.`:x`"
    odd = device(table, "a\nb", "s\x00", types=[12, 99])
    do(state, records.StorageGroupSet("root.`/plant`"))
    do(state, loaded(odd, device("root.sg.d1", "s", types=[10])))
    assert len(series(state)) == 3


def test_columns_are_as_long_as_the_names_and_names_are_there_once(state):
    for broken in (
        device("root.sg.d1"),
        device("root.sg.d1", "s1", "s1"),
        device("root.sg.d1", "s1", "s2", types=[1]),
        device("root.sg.d1", "s1", "s2", lasts=[1]),
    ):
        error = refuse(state, RefusedCommitError, "root.sg.d1", loaded(broken))
        assert type(error) is RefusedCommitError
    refuse(state, SchemaConflictError, "empty name", loaded(device("root.sg.d1", "")))


def test_loads_of_the_same_new_series_are_put_off_and_others_are_not(state):
    one = examine(state, [loaded(device("root.sg.d1", "s1"))])
    same = examine(state, [loaded(device("root.sg.d1", "s1"))])
    other = examine(state, [loaded(device("root.sg.d1", "s2"))])
    do(state, create("root.sg.d9.s1"))
    known = examine(state, [loaded(device("root.sg.d9", "s1"))])
    assert not one.allows(same)
    assert one.allows(other)
    assert known.allows(known)


def test_an_expired_file_frees_its_path_as_any_deleted_one(state):
    do(state, records.FileDeleted(PHYS, "expired"))
    assert state.files[PHYS].reason == "expired"
    assert not state.files[PHYS].visible
    assert state.file_table.held(A, P) is None
    assert state.file_table.deleted() == [state.files[PHYS]]
    assert state.file_table.wanted(A) == []


def test_a_file_has_devices_of_those_alone_that_it_names(state):
    third = "c" * 32
    do(state, seen(third))
    for sender, device in ((A, "root.sg.a"), (B, "root.sg.b"), (third, "root.sg.c")):
        do(state, records.OwnerSet(device, sender, "test"))
    every = dict.fromkeys(("root.sg.a", "root.sg.b", "root.sg.c"), (1, 2))
    some = dict.fromkeys(("root.sg.a", "root.sg.b", "root.sg.new"), (1, 2))
    mine = path("7-7-0")
    refuse(state, ConflictError, "root.sg.c", load(mine, devices=every, owner=B))
    refuse(state, ConflictError, "root.sg.b", load(mine, devices=some))
    refuse(state, ConflictError, "root.sg.c", load(mine, devices=every, others=[B]))
    do(state, load(mine, devices=some, owner=B, others=[third]))
    assert state.owners["root.sg.new"].sender == B
    do(state, load(path("8-8-0"), 2, devices=every, owner=B, others=[third]))
    owners = [state.owners[f"root.sg.{name}"].sender for name in "abc"]
    assert owners == [A, B, third]
