"""A schema as a text log, and as a tree."""

from __future__ import annotations

import pytest

from common.formats.schemaitems import Group, SeriesItem
from common.formats.tlogtext import SLOT, read_slot
from receiver.metadata.text.mlog_text import HEADER
from receiver.metadata.text.schema_dump import Slots, log_lines, log_records, tree_lines

ITEMS = [
    Group(path="root.a", ttl=10),
    Group(path="root.b.c"),
    SeriesItem(path="root.a.d1.s1", type=3, encoding=2, compression=1, alias="x", props={"k": "v"}),
    SeriesItem(path="root.a.d1.s2", type=1, encoding=0, compression=0, tags={"t": "1"}),
    SeriesItem(path="root.a.s", type=1, encoding=0, compression=0),
]


def test_the_log_makes_groups_then_series() -> None:
    slots = Slots()
    assert "".join(log_lines(log_records(ITEMS, slots.place))).splitlines() == [
        "2,root.a",
        "10,root.a,10",
        "2,root.b.c",
        "0,root.a.d1.s1,3,2,1,k=v,x,",
        "0,root.a.d1.s2,1,0,0,,,0",
        "0,root.a.s,1,0,0,,,",
    ]
    assert len(slots.content()) == SLOT
    assert read_slot(slots.content()).tags == {"t": "1"}


def test_the_tree_has_children_before_their_parents() -> None:
    assert "".join(tree_lines(ITEMS, lambda series: 700)).splitlines() == [
        "2,s1,x,3,2,1,k:v;,700,0",
        "2,s2,,1,0,0,,700,0",
        "0,d1,2",
        "2,s,,1,0,0,,700,0",
        "1,a,10,2",
        "1,c,9223372036854775807,0",
        "0,b,1",
        "0,root,2",
    ]


def test_an_empty_schema_is_a_root() -> None:
    assert list(tree_lines([], lambda series: -1)) == ["0,root,0\n"]
    assert list(log_lines(log_records([], lambda series: -1))) == []


@pytest.mark.parametrize(
    "odd",
    [
        SeriesItem(path="root.a.d2.s1", type=1, encoding=0, compression=0, aligned=True),
        SeriesItem(path="root.a.d2.s1", type=1, encoding=0, compression=0, alias="a,b"),
        SeriesItem(path="root.a.d2.`line\nbreak`", type=1, encoding=0, compression=0),
    ],
)
def test_what_the_plain_form_cannot_say_makes_all_of_it_the_wider_one(odd: SeriesItem) -> None:
    lines = "".join(log_lines(log_records([*ITEMS, odd], lambda series: -1))).splitlines()
    assert lines[0] == HEADER
    assert lines[1] == "2,root.a"
    assert len(lines) == len(ITEMS) + 3 + odd.aligned


def test_slots_for_more_tags_than_usual_are_a_multiple_of_the_usual() -> None:
    slots = Slots()
    long = SeriesItem(path="root.a.d.s", type=1, encoding=0, compression=0, tags={"k": "v" * 1000})
    assert slots.place(long) == 0
    assert slots.place(ITEMS[3]) == 2 * SLOT
    assert slots.place(ITEMS[4]) == -1


def test_no_name_moves_a_cursor_or_breaks_a_line_of_the_tree() -> None:
    odd = SeriesItem(
        path="root.a.`d\n1`.`\x1b[2J`",
        type=1,
        encoding=0,
        compression=0,
        alias="\u202e",
        props={"\r": "\n"},
    )
    tree = "".join(tree_lines([Group(path="root.a"), odd], lambda series: -1))
    assert all(line.isprintable() for line in tree.split("\n"))
    assert tree.splitlines()[1:] == [r"0,`d\n1`,1", "1,a,9223372036854775807,1", "0,root,1"]
