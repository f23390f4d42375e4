"""One device, one text."""

from __future__ import annotations

import pytest

from common.tsfile.device_names import device_name, is_table_id, parse_name, split_path


@pytest.mark.parametrize(
    ("segments", "name"),
    [
        (("root.sg", "d1"), "root.sg.d1"),
        (("root.sg.d1",), "root.sg.d1"),
        (("root.a.b", "c", "d"), "root.a.b.c.d"),
        (("root.sg", "`a.b`"), "root.sg.`a.b`"),
        (("root.sg", "a.b"), "root.sg.`a.b`"),
        (("root.sg.`a.b`",), "root.sg.`a.b`"),
        (("root.sg", "`d1`"), "root.sg.d1"),
        (("root.sg.`d1`",), "root.sg.d1"),
        (("root.sg", "d-1"), "root.sg.`d-1`"),
        (("root.sg", "d:1"), "root.sg.`d:1`"),
        (("root.sg", "1"), "root.sg.`1`"),
        (("root.sg", "1e5"), "root.sg.`1e5`"),
        (("root.sg", "1a"), "root.sg.1a"),
        (("root.`x.y`.z", "`q``r`"), "root.`x.y`.z.`q``r`"),
        (("root.sg", "`open"), "root.sg.```open`"),
        (("root.sg", "温度"), "root.sg.温度"),
        (("root.sg", "ü"), "root.sg.`ü`"),
        (("root.sg", ""), "root.sg.``"),
        (("",), "``"),
        (("d1",), "d1"),
    ],
)
def test_a_tree_device_is_its_path_quoted_where_needed(segments, name):
    assert device_name(segments, table=False) == name
    table, nodes = parse_name(name)
    assert not table
    assert device_name((name,), table=False) == name
    assert device_name(tuple(nodes), table=False) == name or "`" in name


@pytest.mark.parametrize(
    ("segments", "name"),
    [
        (("sensors",), "sensors:"),
        (("sensors", "p1"), "sensors:p1"),
        (("sensors", None, "p.2"), "sensors:null.`p.2`"),
        (("sensors", "null", "1"), "sensors:`null`.`1`"),
        (("s:x", "a:b", "", "`"), "`s:x`:`a:b`.``.````"),
    ],
)
def test_a_table_device_is_its_table_and_tags_and_no_tree_path(segments, name):
    assert device_name(segments, table=True) == name
    assert parse_name(name) == (True, segments)


@pytest.mark.parametrize(
    "name", ["root.`d1`", "root.1", "a b", "sensors:`p1`", "x:a:b", "`a`b:c", "a.b:c"]
)
def test_what_is_not_the_one_form_is_no_name(name):
    with pytest.raises(ValueError, match="text form"):
        parse_name(name)


def test_a_table_is_known_by_its_schema_or_a_null_tag_and_never_below_root():
    assert is_table_id(("sensors", "p1"), frozenset({"sensors"}))
    assert is_table_id(("sensors", None, "x"), frozenset())
    assert not is_table_id(("sensors", "p1"), frozenset())
    assert not is_table_id(("root.sg", "d1"), frozenset({"root.sg"}))
    assert not is_table_id(("root",), frozenset({"root"}))


def test_splitting_takes_time_that_grows_with_the_path_only():
    for path in ("`" * 100_000, "`a" + "``" * 50_000, "`a.``b." * 20_000, "." * 100_000):
        assert split_path(path)
