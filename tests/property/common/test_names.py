"""Names, for every text that hypothesis thinks of."""

from __future__ import annotations

import os
from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.errors import NameRefusedError
from common.names import FilePath, Kind, endpoint_dir, escape, unescape

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


TEXTS = st.text("/.-0123456789aZ_tsfile", max_size=100)
PIECES = st.lists(
    st.sampled_from(
        [
            "sequence",
            "unsequence",
            "root.a",
            "0",
            "-1",
            "-0",
            "007",
            "a:",
            "..",
            "1-1-0-0.tsfile",
            "x.tsfile",
            ".tsfile",
            "sync.log",
            "x.tsfile.resource",
            "1-1-0-0.0123456789abcdef.tsfile",
            "\u200b.tsfile",
        ]
    )
    | st.sampled_from(["a b.tsfile", "a" * 70 + ".tsfile", "1" * 30, ""]),
    min_size=4,
    max_size=6,
)


@given(TEXTS | PIECES.map("/".join))
def test_what_is_plain_is_taken_as_after_a_close_look(text):
    def outcome(parse):
        try:
            return parse(text)
        except NameRefusedError as error:
            return str(error)

    assert outcome(FilePath.parse) == outcome(FilePath._looked_at)


@settings(max_examples=50)
@given(st.from_regex(r"[0-9]{1,3}(-[0-9]{1,2}){2,4}(\.[0-9a-f]{16})?\.tsfile(\.resource)?\Z"))
def test_the_end_of_a_name_tells_no_other_than_its_numbers(name):
    path = FilePath(Kind.SEQUENCE, "root.a", "0", 0, name)
    stem = path.stem
    assert path.is_product == (stem is not None and stem.compactions != (0, 0))
