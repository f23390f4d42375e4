"""Paths: what a user may write, what is stored, what a pattern means, where a device stands."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.metadata.model.paths import (
    MANY,
    MAX_NODES,
    MAX_PATH_TEXT,
    ONE,
    IllegalPathError,
    PartialPattern,
    Pattern,
    device_name,
    device_nodes,
    format_path,
    is_below,
    parse_lax,
    parse_path,
    parse_pattern,
    parse_stored,
)

# -- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nodes", "stored"),
    [
        ("root", ("root",), "root"),
        ("root.turbine.d1.s1", ("root", "turbine", "d1", "s1"), None),
        ("root.1.2e5.0x", ("root", "1", "2e5", "0x"), "root.`1`.`2e5`.0x"),
        ("root.`1`.a", ("root", "1", "a"), "root.`1`.a"),
        ("root.`a.b`.c", ("root", "a.b", "c"), None),
        ('root."a.b".c', ("root", "a.b", "c"), "root.`a.b`.c"),
        ("root.`a,b c`", ("root", "a,b c"), None),
        ("root.`a``b`", ("root", "a`b"), None),
        ('root."a""b"', ("root", 'a"b'), 'root.`a"b`'),
        ('root."a`b"', ("root", "a`b"), "root.`a``b`"),
        ("root.`*`.`**`", ("root", "*", "**"), None),
        ("root.`naïve`.`Ω`", ("root", "naïve", "Ω"), None),
        ("root.风机.温度", ("root", "风机", "温度"), None),
        ("root.`abc`.x", ("root", "abc", "x"), "root.abc.x"),
        ("root.`a\nb`", ("root", "a\nb"), None),
        ("root.root", ("root", "root"), None),
    ],
)
def test_a_path_reads_as_its_nodes_and_has_one_stored_form(text, nodes, stored):
    assert parse_path(text) == nodes
    assert format_path(nodes) == (stored or text)
    assert parse_stored(format_path(nodes)) == nodes


@pytest.mark.parametrize(
    ("text", "position", "why"),
    [
        ("", 0, "empty"),
        ("root.", 5, "empty"),
        ("root..a", 5, "empty"),
        (".root", 0, "empty"),
        ("root.a.", 7, "empty"),
        ("root.``.a", 5, "empty"),
        ('root."".a', 5, "empty"),
        ("turbine.d1", 0, "begins with root"),
        ("Root.d1", 0, "begins with root"),
        ("`root`.d1", 0, "begins with root"),
        ("roots.d1", 0, "begins with root"),
        ("root.a b", 6, "back-ticks"),
        ("root.a-b.c", 6, "back-ticks"),
        ("root.a,b", 6, "back-ticks"),
        ("root.-a", 5, "back-ticks"),
        ("root.é", 5, "back-ticks"),
        (" root.a", 0, "back-ticks"),
        ("root.a ", 6, "back-ticks"),
        ("root.a\n", 6, "back-ticks"),
        ("root.a`b`", 6, "back-ticks"),
        ("root.'a'", 5, "back-ticks"),
        ("root.`a", 5, "no end"),
        ('root."a', 5, "no end"),
        ("root.`a``", 5, "no end"),
        ("root.`a`b", 8, "a dot is expected"),
        ("root.`a`.`b`c.d", 12, "a dot is expected"),
        ("root.*", 5, "wildcard"),
        ("root.s*.a", 6, "wildcard"),
        ("root.**", 5, "wildcard"),
    ],
)
def test_an_illegal_path_is_refused_with_the_place_and_the_reason(text, position, why):
    with pytest.raises(IllegalPathError) as caught:
        parse_path(text)
    assert caught.value.extra["position"] == position
    assert why in caught.value.message
    assert repr(text) in caught.value.message


def test_a_path_has_a_largest_size():
    deepest = ".".join(["root", *["a"] * (MAX_NODES - 1)])
    assert len(parse_path(deepest)) == MAX_NODES
    for text in (f"{deepest}.a", f"{deepest}.`a`"):
        with pytest.raises(IllegalPathError, match="nodes"):
            parse_path(text)
    longest = "root." + "a" * (MAX_PATH_TEXT - 5)
    assert parse_path(longest)[1] == longest[5:]
    with pytest.raises(IllegalPathError, match="longer") as caught:
        parse_path(longest + "a")
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    "text", ["root.1", "root.`abc`", 'root."a b"', "root.`1e5f`.`x`", "root.a.`b`"]
)
def test_only_the_stored_form_is_taken_from_records(text):
    with pytest.raises(IllegalPathError, match="stored form"):
        parse_stored(text)
    assert parse_stored(format_path(parse_path(text))) == parse_path(text)


def test_paths_of_older_databases_may_have_any_character_without_quotes():
    assert parse_lax("root.sg-1.a/b:c.s 1,2") == ("root", "sg-1", "a/b:c", "s 1,2")
    assert parse_lax('root.sg."a.b".`c.d`') == ("root", "sg", "a.b", "c.d")
    assert parse_lax("root.*.s*") == ("root", "*", "s*")
    for text in ("", "a.b", "root..a", "root.`a"):
        with pytest.raises(IllegalPathError):
            parse_lax(text)


def test_below_means_strictly_below():
    assert is_below(("root", "a", "b"), ("root", "a"))
    assert not is_below(("root", "a"), ("root", "a"))
    assert not is_below(("root", "ab"), ("root", "a"))


# -- patterns ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("root.a.b", ["root.a.b"], ["root.a", "root.a.b.c", "root.a.c"]),
        ("root.*", ["root.a"], ["root", "root.a.b"]),
        ("root.*.b", ["root.a.b"], ["root.b", "root.a.c.b"]),
        ("root.**", ["root.a", "root.a.b", "root.a.b.c"], ["root"]),
        ("root.a.**", ["root.a.b", "root.a.b.c"], ["root.a", "root.b.c"]),
        ("root.**.s1", ["root.a.s1", "root.a.b.s1", "root.s1.s1"], ["root.s1", "root.a.s2"]),
        ("root.**.**", ["root.a.b", "root.a.b.c"], ["root", "root.a"]),
        ("root.**.b.*", ["root.a.b.c", "root.b.b.b"], ["root.b.c", "root.a.b"]),
        ("root.s*", ["root.s", "root.s1", "root.`s.1`"], ["root.a1", "root.as"]),
        ("root.*s", ["root.s", "root.1s"], ["root.s1"]),
        ("root.*s*t", ["root.st", "root.1s2t"], ["root.ts"]),
        ("root.a*b.c", ["root.ab.c", "root.a1b.c", "root.`a\nb`.c"], ["root.a.b.c"]),
        ("root.`*`", ["root.`*`"], ["root.a"]),
        ("root.`a*`.b", ["root.`a*`.b"], ["root.ab.b"]),
    ],
)
def test_a_pattern_means_what_its_wildcards_say(text, matching, others):
    pattern = parse_pattern(text)
    assert pattern.text == text
    assert [path for path in matching if not pattern.matches(parse_path(path))] == []
    assert [path for path in others if pattern.matches(parse_path(path))] == []


def test_stars_take_time_that_grows_with_the_name_whatever_it_is():
    # As a regular expression this would not end while there is a machine to run it on.
    pattern = parse_pattern("root." + "a*" * 200 + "b")
    assert not pattern.matches(("root", "a" * 50_000))
    assert pattern.matches(("root", "a" * 50_000 + "b"))


@given(
    before=st.text("ab*", max_size=4),
    after=st.text("ab*", max_size=4),
    node=st.text("ab", max_size=9),
)
def test_a_star_stands_for_any_text(before, after, node):
    form = f"{before}*{after}"
    expected = re.fullmatch(form.replace("*", ".*"), node) is not None
    assert PartialPattern(form).matches(node) == expected


def test_a_pattern_is_known_by_its_steps():
    pattern = parse_pattern('root.sg.*.**.s*."*"')
    assert pattern.steps == ("root", "sg", ONE, MANY, PartialPattern("s*"), "*")
    assert pattern.text == "root.sg.*.**.s*.`*`"
    assert pattern.prefix == ("root", "sg")
    assert not pattern.is_path
    assert pattern == parse_pattern(pattern.text)
    assert hash(pattern) == hash(parse_pattern(pattern.text))
    assert pattern != parse_pattern("root.sg.*.**.t*.`*`")
    exact = parse_pattern("root.sg.d1")
    assert exact.is_path
    assert exact == Pattern.of(("root", "sg", "d1"))
    assert exact.below() == parse_pattern("root.sg.d1.**")


@pytest.mark.parametrize(
    ("text", "position", "why"),
    [
        ("**", 0, "begins with root"),
        ("*.a", 0, "begins with root"),
        ("root.a**", 5, "stands alone"),
        ("root.***", 5, "stands alone"),
        ("root.*.", 7, "empty"),
        ("root.`a`*", 8, "a dot is expected"),
        ("root.a-*", 6, "back-ticks"),
    ],
)
def test_an_illegal_pattern_is_refused_with_the_place_and_the_reason(text, position, why):
    with pytest.raises(IllegalPathError) as caught:
        parse_pattern(text)
    assert caught.value.extra["position"] == position
    assert why in caught.value.message


def test_a_walk_with_a_pattern_tells_where_it_may_stop():
    pattern = parse_pattern("root.a.**")
    at_root = pattern.advance(Pattern.START, "root")
    assert pattern.literals(Pattern.START) == ("root",)
    assert pattern.literals(at_root) == ("a",)
    assert pattern.advance(at_root, "b") == 0
    at_a = pattern.advance(at_root, "a")
    assert not pattern.is_match(at_a)
    assert pattern.literals(at_a) is None
    deeper = pattern.advance(at_a, "x")
    assert pattern.is_match(deeper)


# -- devices of files ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("root.turbine.d1", ("root", "turbine", "d1")),
        ("root.sg.`a.b`.`1`", ("root", "sg", "a.b", "1")),
        (
            "/plant/sensors:plant1.null.`west 2`",
            ("root", "/plant", "sensors", ":plant1.null.`west 2`"),
        ),
        ("/plant/sensors:", ("root", "/plant", "sensors", ":")),
        ("/root.t/`a:b`:x", ("root", "/root.t", "a:b", ":x")),
        ("turbine.d1", ("root", "/", "turbine", "d1")),
        ("root.`/plant`.sensors.`:x`", ("root", "/", "root", "/plant", "sensors", ":x")),
        ("root", ("root",)),
    ],
)
def test_every_device_has_a_place_of_its_own_in_the_tree(name, nodes):
    assert device_nodes(name) == nodes
    assert device_name(nodes) == name
    assert parse_stored(format_path(nodes)) == nodes


@pytest.mark.parametrize("name", ["/plant/sensors", "/plant", "/", "/plant/`a:x"])
def test_what_begins_as_a_table_device_and_is_none_is_refused(name):
    with pytest.raises(IllegalPathError):
        device_nodes(name)
