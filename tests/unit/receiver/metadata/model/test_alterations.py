"""The six alterations, each with its rules."""

import pytest

from receiver.metadata.model.alterations import (
    AddAttributes,
    AddTags,
    Drop,
    Labels,
    Rename,
    SetValues,
    Upsert,
    alter,
)
from receiver.metadata.model.errors import TagExistsError, TagMissingError, TagRefusedError

P = "root.sg.d1.s1"
HAS = Labels({"t1": "v1", "t2": "v2"}, {"a1": "w1"}, "alias")


def refuse(error, match, alteration):
    with pytest.raises(error, match=match) as caught:
        alter(P, HAS, alteration)
    assert P in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("alteration", "tags", "attributes", "alias"),
    [
        (Rename("t1", "t3"), {"t3": "v1", "t2": "v2"}, {"a1": "w1"}, "alias"),
        (Rename("a1", "a2"), {"t1": "v1", "t2": "v2"}, {"a2": "w1"}, "alias"),
        (SetValues({"t1": "x", "a1": "y"}), {"t1": "x", "t2": "v2"}, {"a1": "y"}, "alias"),
        (SetValues({}), {"t1": "v1", "t2": "v2"}, {"a1": "w1"}, "alias"),
        (Drop(("t1", "a1")), {"t2": "v2"}, {}, "alias"),
        (Drop(("none", "t2", "t2")), {"t1": "v1"}, {"a1": "w1"}, "alias"),
        (Drop(("",)), {"t1": "v1", "t2": "v2"}, {"a1": "w1"}, "alias"),
        (AddTags({"t3": "v3"}), {"t1": "v1", "t2": "v2", "t3": "v3"}, {"a1": "w1"}, "alias"),
        (AddAttributes({"a2": ""}), {"t1": "v1", "t2": "v2"}, {"a1": "w1", "a2": ""}, "alias"),
        (Upsert("new"), {"t1": "v1", "t2": "v2"}, {"a1": "w1"}, "new"),
        (
            Upsert(tags={"t1": "x", "t9": "y"}),
            {"t1": "x", "t2": "v2", "t9": "y"},
            {"a1": "w1"},
            "alias",
        ),
        (
            Upsert("n", {"t2": "x"}, {"a1": "y", "a2": "z"}),
            {"t1": "v1", "t2": "x"},
            {"a1": "y", "a2": "z"},
            "n",
        ),
    ],
)
def test_what_an_alteration_leaves(alteration, tags, attributes, alias):
    assert alter(P, HAS, alteration) == Labels(tags, attributes, alias)
    assert Labels({"t1": "v1", "t2": "v2"}, {"a1": "w1"}, "alias") == HAS


def test_a_renamed_key_keeps_its_place():
    assert list(alter(P, HAS, Rename("t1", "z")).tags) == ["z", "t2"]


@pytest.mark.parametrize("new", ["t2", "a1", "t1"])
def test_renaming_onto_a_key_that_is_there_is_an_error(new):
    assert (
        refuse(TagExistsError, f"'{new}' is there already", Rename("t1", new)).extra["key"] == new
    )


def test_renaming_or_setting_a_key_that_is_not_there_is_an_error():
    assert refuse(TagMissingError, "'t9'", Rename("t9", "t8")).extra["key"] == "t9"
    assert refuse(TagMissingError, "'t9'", Rename("t9", "t1")).extra["key"] == "t9"
    refuse(TagMissingError, "'x'", SetValues({"t1": "v", "x": "y"}))


@pytest.mark.parametrize("key", ["t1", "a1"])
@pytest.mark.parametrize("kind", [AddTags, AddAttributes])
def test_adding_a_key_that_is_there_is_an_error_be_it_a_tag_or_an_attribute(kind, key):
    error = refuse(TagExistsError, f"'{key}' is there already", kind({"new": "x", key: "y"}))
    assert error.extra == {"path": P, "key": key}


def test_a_key_is_never_a_tag_and_an_attribute():
    refuse(TagExistsError, "'t1' would be a tag and an attribute", Upsert(attributes={"t1": "x"}))
    refuse(TagExistsError, "'a1'", Upsert(tags={"a1": "x"}))
    refuse(TagExistsError, "'n'", Upsert(tags={"n": "x"}, attributes={"n": "y"}))


@pytest.mark.parametrize(
    "alteration",
    [
        Rename("t1", ""),
        AddTags({"": "x"}),
        AddAttributes({"": "x"}),
        Upsert(tags={"": "x"}),
        Upsert(attributes={"": "x"}),
    ],
)
def test_no_key_is_empty(alteration):
    refuse(TagRefusedError, "empty key", alteration)
