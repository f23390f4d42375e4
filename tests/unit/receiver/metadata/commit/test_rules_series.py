"""Series: each has a place of its own in a storage group, a type, and an encoding that fits."""

import msgspec
import pytest

from common.errors import NotFoundError
from common.tsfile.layout import DataType, Encoding
from receiver.metadata.model import records
from receiver.metadata.model.errors import (
    AlignmentError,
    EncodingRefusedError,
    RefusedCommitError,
    SeriesExistsError,
    SeriesMissingError,
    SeriesNestedError,
    StorageGroupMissingError,
    TagExistsError,
    TagRefusedError,
    UnknownCompressionError,
    UnknownEncodingError,
    UnknownTypeError,
)
from receiver.metadata.model.paths import MAX_NODES, MAX_PATH_TEXT, IllegalPathError
from tests.support.committing import create, do, fresh, refuse, series
from tests.support.schema_asked import tagged

gone = records.SeriesDeleted
replace = msgspec.structs.replace


@pytest.fixture
def state():
    return fresh("root.sg")


def test_a_device_gets_all_its_series_or_none(state):
    do(state, create("root.sg.d1", "s1", "s2"))
    refuse(state, SeriesExistsError, r"root.sg.d1.s2 is there", create("root.sg.d1", "s3", "s2"))
    do(state, create("root.sg.d1", "s3", "`"), create("root.sg.d2.s1"))
    assert series(state) == [
        "root.sg.d1.````",
        "root.sg.d1.s1",
        "root.sg.d1.s2",
        "root.sg.d1.s3",
        "root.sg.d2.s1",
    ]


def test_one_is_there_once(state):
    do(state, create("root.sg.d1.s1"))
    error = refuse(state, SeriesExistsError, "root.sg.d1.s1", create("root.sg.d1.s1"))
    assert error.extra["path"] == "root.sg.d1.s1"
    refuse(
        state,
        SeriesExistsError,
        "root.sg.d1.s1",
        create("root.sg.d1.s1", type=DataType.TEXT, encoding=0),
    )
    refuse(state, SeriesExistsError, "root.sg.d2.a .*twice", create("root.sg.d2", "a", "b", "a"))
    refuse(state, SeriesExistsError, "root.sg.d2.a", create("root.sg.d2.a"), create("root.sg.d2.a"))


def test_none_stands_below_another_whichever_comes_first(state):
    do(state, create("root.sg.a.b"))
    for device in ("root.sg.a.b", "root.sg.a.b.c", "root.sg.a.b.c.d"):
        error = refuse(state, SeriesNestedError, "root.sg.a.b is a series", create(device, "s"))
        assert error.extra == {"path": device, "other": "root.sg.a.b"}
    do(state, create("root.sg.x.y.s1"))
    for path in ("root.sg.x", "root.sg.x.y"):
        refuse(state, SeriesNestedError, f"{path} cannot be a series", create(path))


def test_none_stands_below_another_of_the_same_commit(state):
    refuse(
        state, SeriesNestedError, "root.sg.a.b is a series",
        create("root.sg.a.b"), create("root.sg.a.b.c.d"),
    )  # fmt: skip
    refuse(
        state, SeriesNestedError, "root.sg.a.b cannot be a series",
        create("root.sg.a.b.c.d"), create("root.sg.a.b"),
    )  # fmt: skip
    do(state, create("root.sg.a.b.c.d"), create("root.sg.a.b.e"), create("root.sg.a.c"))
    assert series(state) == ["root.sg.a.b.c.d", "root.sg.a.b.e", "root.sg.a.c"]


def test_every_one_lies_in_a_storage_group(state):
    refuse(state, StorageGroupMissingError, "root.other.d1 lies in no", create("root.other.d1.s1"))
    refuse(state, StorageGroupMissingError, "root.s1 would stand directly below", create("root.s1"))
    refuse(state, StorageGroupMissingError, "root.sg would stand directly", create("root.sg"))
    do(state, records.StorageGroupSet("root.other", if_missing=True), create("root.other.d1.s1"))
    assert series(state, "root.other.**") == ["root.other.d1.s1"]


def test_one_may_stand_directly_in_its_storage_group(state):
    do(state, create("root.sg.s1"), create("root.sg.d1.s1"))
    assert series(state) == ["root.sg.d1.s1", "root.sg.s1"]
    refuse(state, SeriesNestedError, "root.sg.s1 is a series", create("root.sg.s1.s2"))
    refuse(state, SeriesNestedError, "root.sg.d1 cannot be", create("root.sg.d1"))


@pytest.mark.parametrize("device", ["", "sg.d1", "root..d1", "root.sg.", "root.sg.*", "root.sg.1"])
def test_the_device_is_a_path_in_its_stored_form(state, device):
    refuse(state, IllegalPathError, "illegal path", create(device, "s1"))


def test_nodes_may_have_any_printable_name(state):
    names = ("1", "a.b", "a b", "a,b", "*", "`", '"', "naïve", "风", "-", "root", "**")
    do(state, create("root.sg.`1`.`a.b`", *names))
    assert len(series(state)) == len(names)
    assert "root.sg.`1`.`a.b`.`a,b`" in series(state)
    refuse(state, SeriesExistsError, r"root.sg.`1`.`a.b`.`a,b`", create("root.sg.`1`.`a.b`", "a,b"))


def test_empty_names_are_refused(state):
    refuse(state, IllegalPathError, "root.sg.d1", create("root.sg.d1", "s1", ""))
    refuse(state, IllegalPathError, "root.sg", create("root.sg.``.d1", "s1"))


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "a\x00", "\x85"])
def test_what_a_file_may_be_named_a_schema_from_elsewhere_may_name_too(state, name):
    do(state, create("root.sg.d1", "s1", name), create(f"root.sg.`{name}`.d1", "s1"))
    assert f"root.sg.d1.`{name}`" in series(state)


def test_a_path_has_a_largest_size(state):
    deep = ".".join(["root", "sg", *["a"] * (MAX_NODES - 3)])
    do(state, create(deep, "s1"))
    refuse(state, IllegalPathError, "nodes", create(f"{deep}.a", "s1"))
    refuse(state, IllegalPathError, "characters", create("root.sg.d1", "a" * MAX_PATH_TEXT))
    do(state, create("root.sg.d1", *("b" * 20_000 + str(each) for each in range(5))))


@pytest.mark.parametrize(
    ("codes", "error", "match"),
    [
        ((7, 0, 1), UnknownTypeError, "7 is no data type"),
        ((6, 0, 1), UnknownTypeError, "6 is no data type"),
        ((99, 0, 1), UnknownTypeError, "99"),
        ((1, 15, 1), UnknownEncodingError, "15 is no encoding"),
        ((1, 2, 10), UnknownCompressionError, "10 is no compression"),
        ((0, 4, 1), EncodingRefusedError, "TS_2DIFF is not for BOOLEAN.*PLAIN, RLE"),
        ((5, 8, 1), EncodingRefusedError, "GORILLA is not for TEXT"),
        ((3, 7, 1), EncodingRefusedError, "REGULAR is not for FLOAT"),
        ((3, 14, 1), EncodingRefusedError, "CAMEL is not for FLOAT"),
        ((10, 1, 1), EncodingRefusedError, "DICTIONARY is not for BLOB"),
    ],
)
def test_type_encoding_and_compression_are_known_and_go_together(state, codes, error, match):
    good = create("root.sg.d1", "s1", "s2")
    columns = [bytes([first, code]) for first, code in zip((1, 2, 1), codes, strict=True)]
    op = replace(good, types=columns[0], encodings=columns[1], compressions=columns[2])
    found = refuse(state, error, match, op)
    assert "root.sg.d1.s2" in found.message


def test_columns_are_as_long_as_the_names(state):
    good = create("root.sg.d1", "s1", "s2", tags=[{"a": "b"}, {}])
    for broken in (
        {"types": b"\x01"},
        {"encodings": b"\x01\x01\x01"},
        {"compressions": b""},
        {"aliases": ["a"]},
        {"tags": [{}]},
        {"attributes": [{}, {}, {}]},
        {"props": [{}]},
    ):
        refuse(state, RefusedCommitError, "root.sg.d1.* different length", replace(good, **broken))
    nothing = records.SeriesCreated("root.sg.d1", (), b"", b"", b"")
    refuse(state, RefusedCommitError, "root.sg.d1.*no series", nothing)


def test_tags_and_attributes_have_keys_each_of_them_once(state):
    bad = create("root.sg.d1.s1", tags={"": "x"})
    refuse(state, TagRefusedError, "root.sg.d1.s1", bad)
    refuse(state, TagRefusedError, "root.sg.d1.s1", create("root.sg.d1.s1", attributes={"": "x"}))
    both = create("root.sg.d1.s1", tags={"unit": "C"}, attributes={"unit": "C"})
    assert refuse(state, TagExistsError, "root.sg.d1.s1.*'unit'", both).extra["key"] == "unit"
    do(state, create("root.sg.d1.s1", tags={"unit": ""}, attributes={"x": "C"}))
    path = records.TagsSet("root.sg.d1.s1", {"a": "1"}, {"a": "2"})
    refuse(state, TagExistsError, "root.sg.d1.s1.*'a'", path)
    refuse(state, TagRefusedError, "root.sg.d1.s1", records.TagsSet("root.sg.d1.s1", {"": "1"}, {}))
    missing = records.TagsSet("root.sg.d1.s2", {"a": "1"}, {})
    refuse(state, SeriesMissingError, "root.sg.d1.s2", missing)
    do(state, create("root.sg.d1.s2"), missing)
    assert tagged(state.schema, "a", "1") == ["root.sg.d1.s2"]


def test_a_device_shares_one_time_column_or_does_not(state):
    do(state, create("root.sg.d1.s1", aligned=True))
    refuse(state, AlignmentError, "root.sg.d1 is there.*share one", create("root.sg.d1.s2"))
    do(state, create("root.sg.d1.s2", aligned=True), create("root.sg.d1.d2.s1"))
    refuse(
        state,
        AlignmentError,
        "root.sg.d1.d2.*of their own",
        create("root.sg.d1.d2.s2", aligned=True),
    )
    do(state, gone("root.sg.d1.*"), create("root.sg.d1.s3"))
    refuse(state, AlignmentError, "root.sg.d1", create("root.sg.d1.s4", aligned=True))
    refuse(
        state,
        AlignmentError,
        "root.sg.new",
        create("root.sg.new.a"),
        create("root.sg.new.b", aligned=True),
    )
    again = create("root.sg.e.a", aligned=True), gone("root.sg.e.a"), create("root.sg.e.b")
    do(state, *again)
    refuse(state, AlignmentError, "root.sg.e", create("root.sg.e.c", aligned=True))


# -- deletion ------------------------------------------------------------------------------------


def test_deleting_prunes_what_is_empty_up_to_the_storage_group(state):
    do(state, create("root.sg.a.b.s1"), create("root.sg.a.s2"))
    do(state, gone("root.sg.a.b.s1"))
    assert state.schema.nodes.kind_at(("root", "sg", "a", "b")) is None
    assert state.schema.nodes.kind_at(("root", "sg", "a")) == "internal"
    do(state, gone("root.sg.a.s2"))
    assert state.schema.nodes.kind_at(("root", "sg", "a")) is None
    assert state.schema.nodes.kind_at(("root", "sg")) == "storage_group"
    do(state, create("root.sg.a"))
    assert series(state) == ["root.sg.a"]


@pytest.mark.parametrize(
    "pattern", ["root.sg.d1.s2", "root.sg.d2.**", "root.sg.*.x*", "root.sg.d1", "root.other.**"]
)
def test_what_is_not_there_cannot_be_deleted(state, pattern):
    do(state, create("root.sg.d1.s1"))
    error = refuse(state, SeriesMissingError, "no series", gone(pattern))
    assert error.extra["path"] == pattern
    assert isinstance(error, NotFoundError)


def test_a_path_above_series_is_answered_with_the_pattern_that_would_mean_them(state):
    do(state, create("root.sg.d1.s1"))
    refuse(
        state,
        SeriesMissingError,
        r"no series root.sg.d1; root.sg.d1.\*\* would mean",
        gone("root.sg.d1"),
    )


def test_a_pattern_is_stored_in_its_one_form(state):
    do(state, create("root.sg.`1`.s1"))
    refuse(state, RefusedCommitError, "stored form", gone("root.sg.1.*"))
    refuse(state, RefusedCommitError, "stored form", gone('root.sg."a".*'))
    refuse(state, IllegalPathError, "begins with root", gone("**"))
    do(state, gone("root.sg.`1`.*"))
    assert series(state) == []


def test_what_a_commit_deletes_is_gone_for_what_follows_in_it(state):
    do(state, create("root.sg.d1", "s1", "s2", aliases=["a1", None]), create("root.sg.d2.s1"))
    refuse(state, SeriesMissingError, "root.sg.d1", gone("root.sg.d1.**"), gone("root.sg.d1.s1"))
    alias = records.AliasSet("root.sg.d1.s2", "x")
    refuse(state, SeriesMissingError, "root.sg.d1.s2", gone("root.sg.d1.s2"), alias)
    refuse(
        state, SeriesNestedError, "root.sg.d1 cannot be a series",
        gone("root.sg.d1.s1"), create("root.sg.d1"),
    )  # fmt: skip
    do(state, gone("root.sg.d1.s1"), create("root.sg.d1", "s1", "a1"), gone("root.sg.d1.s1"))
    assert series(state) == ["root.sg.d1.a1", "root.sg.d1.s2", "root.sg.d2.s1"]
    do(
        state,
        gone("root.sg.d1.**"),
        create("root.sg.d1"),
        gone("root.sg.d1"),
        create("root.sg.d1.x.y"),
    )
    assert series(state) == ["root.sg.d1.x.y", "root.sg.d2.s1"]
    refuse(
        state,
        SeriesMissingError,
        "root.sg.new",
        create("root.sg.new"),
        gone("root.sg.new"),
        gone("root.sg.new"),
    )


def test_a_series_deleted_and_made_again_is_another_one(state):
    first = do(state, create("root.sg.d1.s1", type=DataType.INT32, tags={"a": "1"}))
    do(state, gone("root.sg.d1.s1"))
    second = do(state, create("root.sg.d1.s1", type=DataType.DOUBLE, encoding=Encoding.GORILLA))
    find = state.schema.series.find
    path = ("root", "sg", "d1", "s1")
    assert state.schema.series.describe(find(path)).type == DataType.DOUBLE
    assert state.schema.series.describe(find(path)).created == second
    assert state.schema.series.describe(find(path, first), first).type == DataType.INT32
    assert tagged(state.schema, "a", "1") == []
