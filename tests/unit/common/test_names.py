"""Names: what passes the door, what does not, and escaping that can be undone."""

from __future__ import annotations

import unicodedata

import pytest

from common import names
from common.errors import NameRefusedError
from common.names import FilePath, Kind, Stem, check_component, endpoint_dir, escape, unescape

GOOD = [
    "sequence/root.turbine/0/0/1581324718762-101-1.tsfile",
    "unsequence/root.turbine/0/0/1581324718762-101-1-0.tsfile",
    "sequence/root.turbine/0/0/1581324718762-101-1.tsfile.resource",
    "sequence/root_with_underscores/0/2701/1-1-0-0.tsfile",
    "sequence/root.two words/0/0/x.tsfile",
    "sequence/root.größe/0/0/x.tsfile",
    "sequence/root.涡轮/0/0/风.tsfile",
    "sequence/root.\U0001f600/0/0/x.tsfile",
    "sequence/root.\ue000/0/0/x.tsfile",
    "sequence/root.\U000e0100/0/0/x.tsfile",
    "sequence/root,with,commas/0/0/x.tsfile",
    "sequence/root.a:b/0/0/x.tsfile",
    "sequence/root.%2F/0/0/x.tsfile",
    "sequence/~/0/0/x.tsfile",
    "sequence/root.a/0/-1/x.tsfile",
    "sequence/root.a/0/-9223372036854775808/x.tsfile",
    "sequence/root.a/0/9223372036854775807/x.tsfile",
    "sequence/.../0/0/x.tsfile",
    "sequence/root.sync.log/0/0/sync.log.tsfile",
    "sequence/" + "s" * 200 + "/" + "v" * 200 + "/0/" + "n" * 193 + ".tsfile",
    "sequence/" + "ä" * 100 + "/0/0/" + "n" * 193 + ".tsfile.resource",
]

BAD = [
    "",
    "sequence",
    "sequence/root.a/0/0",
    "sequence/root.a/0/0/",
    "sequence/root.a/0/0/x.tsfile/",
    "sequence/root.a/0/0/0/x.tsfile",
    "/sequence/root.a/0/0/x.tsfile",
    "Sequence/root.a/0/0/x.tsfile",
    "data/root.a/0/0/x.tsfile",
    "./sequence/root.a/0/x.tsfile",
    "sequence/../0/0/x.tsfile",
    "sequence/./0/0/x.tsfile",
    "sequence//0/0/x.tsfile",
    "sequence/root.a/../0/x.tsfile",
    "sequence/root.a//0/x.tsfile",
    "sequence/root.a/0/../x.tsfile",
    "../../../../etc/x.tsfile",
    "sequence\\root.a\\0\\0\\x.tsfile",
    "sequence/root.a/0/0/..\\x.tsfile",
    "sequence/C:/0/0/x.tsfile",
    "sequence/c:evil/0/0/x.tsfile",
    "sequence/root.a/0/0/C:x.tsfile",
    "sequence/root.a/0/0/x\0.tsfile",
    "sequence/root.a/0/0/x\n.tsfile",
    "sequence/root.a/0/0/x.tsfile\n",
    "sequence/root.a/0/0/x\r.tsfile",
    "sequence/root.a/0/0/x\x1b[31m.tsfile",
    "sequence/root.a/0/0/x\x7f.tsfile",
    "sequence/root.a/0/0/x\x85.tsfile",
    "sequence/root.a/0/0/x\u2028.tsfile",
    "sequence/root.a/0/0/x\u2029.tsfile",
    "sequence/root.a/0/0/\u202eelifst.x.tsfile",
    "sequence/root.a/0/0/x\u200b.tsfile",
    "sequence/root.a/0/0/x\ufeff.tsfile",
    "sequence/root.a/0/0/x\xad.tsfile",
    "sequence/root.a/0/0/x\U000e0041.tsfile",
    "sequence/root.a/0/0/x\udcff.tsfile",
    "sequence/root.a/0/0/x\ud800.tsfile",
    "sequence/root.a/0/0/x\uffff.tsfile",
    "sequence/root.a/0/0/x\U0010ffff.tsfile",
    "sequence/ root.a/0/0/x.tsfile",
    "sequence/root.a /0/0/x.tsfile",
    "sequence/root.a\u3000/0/0/x.tsfile",
    "sequence/root.a/0/0/ x.tsfile",
    "sequence/sync.log/0/0/x.tsfile",
    "sequence/root.a/uuid.txt/0/x.tsfile",
    "sequence/root.a/0/0/sync.log",
    "sequence/root.a/0/0/uuid.txt",
    "sequence/root.a/0/0/x.tmp",
    "sequence/root.a/0/0/x",
    "sequence/root.a/0/0/.tsfile",
    "sequence/root.a/0/0/.tsfile.resource",
    "sequence/root.a/0/0/.hidden.tsfile",
    "sequence/root.a/0/0/x.tsfile.mods",
    "sequence/root.a/0/0/x.TSFILE",
    "sequence/root.a/0/0/x.tsfile.resource.resource",
    "sequence/root.a/0/x/x.tsfile",
    "sequence/root.a/0//x.tsfile",
    "sequence/root.a/0/-0/x.tsfile",
    "sequence/root.a/0/00/x.tsfile",
    "sequence/root.a/0/01/x.tsfile",
    "sequence/root.a/0/+1/x.tsfile",
    "sequence/root.a/0/--1/x.tsfile",
    "sequence/root.a/0/1.0/x.tsfile",
    "sequence/root.a/0/1_0/x.tsfile",
    "sequence/root.a/0/ 1/x.tsfile",
    "sequence/root.a/0/\u0661/x.tsfile",
    "sequence/root.a/0/0x10/x.tsfile",
    "sequence/root.a/0/9223372036854775808/x.tsfile",
    "sequence/root.a/0/-9223372036854775809/x.tsfile",
    "sequence/root.a/0/" + "9" * 5000 + "/x.tsfile",
    "sequence/" + "s" * 201 + "/0/0/x.tsfile",
    "sequence/" + "ä" * 101 + "/0/0/x.tsfile",
    "sequence/root.a/" + "v" * 201 + "/0/x.tsfile",
    "sequence/root.a/0/0/" + "n" * 194 + ".tsfile",
    "sequence/root.a/0/0/" + "n" * 194 + ".tsfile.resource",
    "sequence/root.a/0/0/" + "ä" * 97 + ".tsfile",
    "sequence/" + "s" * 5000 + "/0/0/x.tsfile",
    "x" * 1_000_000,
]


@pytest.mark.parametrize("text", GOOD, ids=lambda text: ascii(text[:60]))
def test_a_good_path_reads_back_as_it_was(text):
    path = FilePath.parse(text)
    assert path.text == str(path) == text
    assert FilePath.parse(path.text) == path
    assert path.tsfile.resource.tsfile == path.tsfile
    assert path.is_resource == text.endswith(".resource")


@pytest.mark.parametrize("text", BAD, ids=lambda text: ascii(text[:60]))
def test_a_bad_path_is_refused_at_the_door_in_one_printable_line(text):
    with pytest.raises(NameRefusedError) as caught:
        FilePath.parse(text)
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 5000


def test_the_parts_of_a_path_are_told():
    path = FilePath.parse("unsequence/root.a/3/-7/10-20-1-2.tsfile")
    assert (path.kind, path.sg, path.vsg, path.partition) == (Kind.UNSEQUENCE, "root.a", "3", -7)
    assert path.directory == "unsequence/root.a/3/-7"
    assert path.group == ("root.a", "3", -7)
    assert path.stem == Stem(10, 20, 1, 2)
    assert path.stem.compactions == (2, 1)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("1581324718762-101-1.tsfile", Stem(1581324718762, 101, 1, 0)),
        ("1581324718762-101-1.tsfile.resource", Stem(1581324718762, 101, 1, 0)),
        ("1-2-3-4.0123456789abcdef.tsfile", Stem(1, 2, 3, 4)),
        ("1-2.tsfile", None),
        ("1-2-3-4-5.tsfile", None),
        ("a-2-3.tsfile", None),
        ("-1-2-3.tsfile", None),
        ("1-2-3.x.tsfile", None),
        ("\u0661-2-3.tsfile", None),
    ],
)
def test_the_numbers_of_a_name_are_read_where_a_database_gave_it(name, stem):
    assert FilePath.parse(f"sequence/root.a/0/0/{name}").stem == stem


def test_normal_forms_are_distinct_and_nothing_is_normalised():
    composed = FilePath.parse("sequence/root.\u00e9/0/0/x.tsfile")
    decomposed = FilePath.parse("sequence/root.e\u0301/0/0/x.tsfile")
    assert composed != decomposed
    assert composed.text != decomposed.text
    assert unicodedata.normalize("NFC", decomposed.text) == composed.text


def test_the_answer_does_not_depend_on_the_unicode_version_of_this_python():
    """Every code point that any version calls a control or invisible is refused by number."""
    for number in range(0x110000):
        character = chr(number)
        refused = names._bad().match(character) is not None
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            assert refused, hex(number)
        elif refused:  # reserved for such characters, or never a character
            assert unicodedata.category(character) == "Cn", hex(number)


def test_a_physical_name_begins_with_the_stem_and_passes_the_same_door():
    path = FilePath.parse("sequence/root.a/0/0/1-2-3-4.tsfile")
    physical = path.physical("0123456789abcdef")
    assert physical.text == "sequence/root.a/0/0/1-2-3-4.0123456789abcdef.tsfile"
    assert physical.physical("f" * 16).name == "1-2-3-4.ffffffffffffffff.tsfile"
    assert path.resource.physical("0" * 16) == path.physical("0" * 16).resource
    assert physical.stem == path.stem


@pytest.mark.parametrize("base", ["n" * 193, "ä" * 96])
def test_the_physical_name_of_the_longest_name_is_still_a_name(base):
    path = FilePath.parse(f"sequence/root.a/0/0/{base}.tsfile")
    physical = path.physical("0123456789abcdef")
    assert FilePath.parse(physical.text) == physical
    assert FilePath.parse(physical.resource.text) == physical.resource
    again = physical.physical("f" * 16)
    assert FilePath.parse(again.text) == again
    assert len(again.resource.name.encode()) <= 255


@pytest.mark.parametrize("tag", ["", "0" * 15, "0" * 17, "G" * 16, "A" * 16, "../../x/../../y"])
def test_only_a_tag_of_16_hex_digits_is_put_into_a_name(tag):
    with pytest.raises(AssertionError):
        FilePath.parse("sequence/root.a/0/0/x.tsfile").physical(tag)


def test_paths_order_by_their_parts():
    texts = [
        "sequence/a/0/9/x.tsfile",
        "sequence/a/0/10/x.tsfile",
        "sequence/b/0/-1/x.tsfile",
        "unsequence/a/0/0/x.tsfile",
    ]
    assert sorted(map(FilePath.parse, reversed(texts))) == [FilePath.parse(each) for each in texts]


@pytest.mark.parametrize("size", [254, 255])
def test_the_limit_of_a_component_counts_bytes(size):
    assert check_component("x" * size, "name")
    assert check_component("ä" * (size // 2), "name")
    with pytest.raises(NameRefusedError, match="256 bytes, at most 255"):
        check_component("ä" * 128, "name")


@pytest.mark.parametrize("word", sorted(names.RESERVED))
def test_reserved_words_are_refused(word):
    with pytest.raises(NameRefusedError, match="reserved"):
        check_component(word, "name")


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("0" * 32, True),
        ("0123456789abcdef" * 2, True),
        ("0123456789ABCDEF" * 2, False),
        ("0" * 31, False),
        ("0" * 33, False),
        ("0" * 32 + "\n", False),
        ("\u0661" * 32, False),
        ("", False),
        ("../other", False),
    ],
)
def test_uuids_and_task_ids_are_32_lower_case_hex_digits(text, good):
    assert names.is_sender_uuid(text) is good
    assert names.is_task_id(text) is good


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("localhost", "localhost"),
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "%3A%3A1"),
        ("fe80::1%eth0", "fe80%3A%3A1%25eth0"),
        ("a_b", "a%5Fb"),
        (".", "%2E"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("", "%"),
        ("%", "%25"),
        ("a/b", "a%2Fb"),
        ("ä", "%C3%A4"),
        ("\udcff", "%ED%B3%BF"),
        ("\0", "%00"),
    ],
)
def test_any_text_becomes_a_file_name_and_back(text, name):
    assert escape(text) == name
    assert unescape(name) == text


@pytest.mark.parametrize(
    "name",
    ["", "%4", "%zz", "%41", "%2e", "a_b", "ä", "%", "a%", "%ff", "a b", "%+1", "% 1", ".x", "%%"],
)
def test_a_name_that_no_escape_made_is_refused(name):
    if name == "%":
        assert unescape(name) == ""
        return
    with pytest.raises(NameRefusedError):
        unescape(name)


def test_the_directory_of_an_endpoint_has_exactly_one_separator():
    for host in ("edge_1", "::1", "_", "", "a.b"):
        name = endpoint_dir(host, 6667)
        assert name.count("_") == 1
        assert unescape(name.split("_")[0]) == host
