"""Paths against models: what is formatted reads back, and a pattern is a regular expression."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from common.tsfile.device_names import device_name as file_device_name
from common.tsfile.device_names import in_database, tree_name
from receiver.metadata.model.paths import (
    IllegalPathError,
    Pattern,
    device_name,
    device_nodes,
    format_path,
    parse_lax,
    parse_path,
    parse_pattern,
    parse_stored,
)

words = st.text(min_size=1, max_size=6)
short = st.sampled_from(["a", "b", "s", "s1", "ab", "*", "a.b", "1", "`", '"', "**", "风"])
nodes = st.lists(words | short, min_size=0, max_size=5).map(lambda rest: ("root", *rest))
few = st.lists(st.sampled_from(["a", "b", "ab", "ba"]), max_size=5).map(
    lambda rest: ("root", *rest)
)


@given(nodes)
def test_what_is_formatted_reads_back_in_every_way(path):
    text = format_path(path)
    assert parse_path(text) == path
    assert parse_stored(text) == path
    assert parse_lax(text) == path
    assert parse_pattern(text) == Pattern.of(path)


@given(nodes)
def test_double_quotes_read_as_back_ticks_do(path):
    text = ".".join(["root", *('"' + node.replace('"', '""') + '"' for node in path[1:])])
    assert parse_path(text) == path


@given(st.text(max_size=12) | st.text('root.`"*ab1 ', max_size=16))
@example("root.`")
@example("root.``")
def test_any_text_is_a_path_or_an_error_that_names_a_place_in_it(text):
    for parse in (parse_path, parse_pattern, parse_lax):
        parsed, position = _parsed(parse, text)
        assert 0 <= position <= len(text)
        if parsed is not None:
            pattern = parsed if isinstance(parsed, Pattern) else Pattern.of(parsed)
            assert parse_pattern(pattern.text) == pattern


def _parsed(parse, text):
    try:
        return parse(text), 0
    except IllegalPathError as error:
        return None, error.extra["position"]


steps = st.sampled_from(["*", "**", "a*", "*b", "*a*", "a", "b", "ab"])


@given(st.lists(steps, max_size=4), few)
def test_a_pattern_matches_as_its_regular_expression_does(rest, path):
    pattern = parse_pattern(".".join(["root", *rest]))
    expression = r"\.".join(["root", *(_expression(step) for step in rest)])
    assert pattern.matches(path) == bool(re.fullmatch(expression, ".".join(path)))


def _expression(step):
    if step == "**":
        return r"[^.]+(?:\.[^.]+)*"
    return step.replace("*", "[^.]*") if step != "*" else "[^.]+"


@given(st.lists(steps, max_size=4), few)
def test_a_walk_matches_what_the_pattern_matches_and_says_no_only_where_nothing_follows(rest, path):
    pattern = parse_pattern(".".join(["root", *rest]))
    state = Pattern.START
    for depth, node in enumerate(path):
        literals = pattern.literals(state)
        took_child = pattern.takes_child(state)
        state = pattern.advance(state, node)
        if literals is not None and node not in literals:
            assert state == 0
        assert pattern.is_match(state) == pattern.matches(path[: depth + 1])
        assert took_child or not pattern.is_match(state)
        if not state:
            assert not pattern.matches(path)


tags = st.lists(st.none() | words, max_size=3).map(
    lambda each: each if not each or each[-1] is not None else [*each, "x"]
)
tables = st.tuples(words.filter(lambda text: "/" not in text), words, tags).map(
    lambda each: in_database(file_device_name((each[1], *each[2]), table=True), each[0])
)
trees = st.lists(words | short | st.just("/a") | st.just(":x"), min_size=1, max_size=4).map(
    tree_name
) | nodes.map(tree_name)


@given(trees | tables)
def test_a_device_comes_back_from_its_place(name):
    assert device_name(device_nodes(name)) == name


@given(trees | tables, trees | tables)
def test_two_devices_never_share_a_place(one, other):
    assert (device_nodes(one) == device_nodes(other)) == (one == other)
