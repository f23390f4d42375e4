"""Names, for every text that hypothesis thinks of."""

from __future__ import annotations

import os
from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from common.errors import NameRefusedError
from common.names import FilePath, endpoint_dir, escape, unescape

ANY = st.text(st.characters(), max_size=60)  # lone surrogates among them


@given(ANY)
@example("")
@example(".")
@example("..")
@example("%")
@example("\ud83d\ude00")
def test_every_text_can_be_escaped_into_one_safe_component_and_back(text):
    name = escape(text)
    assert unescape(name) == text
    assert name.isascii()
    assert name not in ("", ".", "..")
    assert not name.startswith(".")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-%")


@given(ANY, ANY)
def test_different_texts_have_different_names(one, two):
    assert (escape(one) == escape(two)) == (one == two)


@given(ANY, ANY, st.integers(1, 65535), st.integers(1, 65535))
def test_different_endpoints_have_different_directories(one, two, port, other):
    assert (endpoint_dir(one, port) == endpoint_dir(two, other)) == ((one, port) == (two, other))


@given(ANY)
def test_what_unescape_takes_escape_made(name):
    try:
        text = unescape(name)
    except NameRefusedError:
        return
    assert escape(text) == name


COMPONENT = st.text(st.characters(), min_size=1, max_size=30)


@given(
    st.sampled_from(["sequence", "unsequence", "x"]),
    COMPONENT,
    COMPONENT,
    st.one_of(st.integers(-(2**64), 2**64).map(str), COMPONENT),
    COMPONENT,
    st.sampled_from([".tsfile", ".tsfile.resource", ""]),
)
def test_what_passes_the_door_is_a_line_a_path_and_itself(kind, sg, vsg, partition, name, suffix):
    text = f"{kind}/{sg}/{vsg}/{partition}/{name}{suffix}"
    try:
        path = FilePath.parse(text)
    except NameRefusedError:
        return
    assert path.text == text
    assert len(text.splitlines()) == 1
    assert os.path.normpath(text) == text
    assert not os.path.isabs(text)
    assert text.encode().decode() == text
    physical = path.physical("0123456789abcdef")
    assert FilePath.parse(physical.text) == physical


@given(ANY)
def test_nothing_but_a_refusal_comes_out_of_the_parser(text):
    with suppress(NameRefusedError):
        assert FilePath.parse(text).text == text
