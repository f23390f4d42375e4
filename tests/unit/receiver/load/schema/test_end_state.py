"""A schema log, reduced to its end state."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from common.formats.schemaitems import Altered, Dropped, Group, GroupDropped, SeriesItem
from common.formats.tlogtext import write_slot
from receiver.load.schema.end_state import Reduced, reduce_text
from receiver.metadata.text.mlog_text import HEADER


def reduce(*lines: str, slots=None, start: int = 0, news: int = 0) -> Reduced:
    text = "".join(f"{line}\n" for line in lines).encode()
    return reduce_text(text, {} if slots is None else slots, start=start, news=news)


def items(*lines: str, **how):
    reduced = reduce(*lines, **how)
    assert reduced.failed == []
    return reduced.items


def test_what_was_made_and_deleted_again_leaves_a_deletion_that_changes_nothing() -> None:
    assert items("0,root.a.d.s,1,0,0,,,", "1,root.a.d.s") == [Dropped(path="root.a.d.s")]


def test_what_was_deleted_and_made_again_is_one_series() -> None:
    (item,) = items("1,root.a.d.s", "0,root.a.d.s,3,0,0,,,")
    assert isinstance(item, SeriesItem)
    assert (item.type, item.replaces, item.alias, item.tags) == (3, True, None, {})


def test_a_deletion_before_the_news_replaces_nothing_and_is_old() -> None:
    lines = ("1,root.a.d.s", "0,root.a.d.s,3,0,0,,,", "1,root.a.d.t")
    end = sum(len(line) + 1 for line in lines)
    gone, made = items(*lines, news=end)
    assert gone == Dropped(path="root.a.d.t", old=True)
    assert isinstance(made, SeriesItem)
    assert (made.replaces, made.alias, made.tags) == (False, UNSET, UNSET)


@pytest.mark.parametrize("deleted", ["1,root.a", "11,root.a"])
def test_a_storage_group_takes_with_it_what_is_below(deleted: str) -> None:
    found = items("2,root.a", "0,root.a.d.s,1,0,0,,,", "10,root.a,5", deleted)
    assert found == [GroupDropped(path="root.a")]
    found = items("2,root.a", "0,root.a.d.s,1,0,0,,,", "10,root.a,5", deleted, "2,root.a")
    assert found == [Group(path="root.a")]


def test_the_last_ttl_and_the_last_alias_count() -> None:
    lines = ("10,root.a,5", "10,root.a,7", "13,root.a.d.s,x", "13,root.a.d.s,y")
    assert items(*lines) == [Group(path="root.a", ttl=7), Altered(path="root.a.d.s", alias="y")]


def test_tags_are_read_from_where_the_log_last_says() -> None:
    slots = {0: write_slot({"k": "old"}, {}), 700: write_slot({"k": "new"}, {"a": "b"})}
    (item,) = items("0,root.a.d.s,1,0,0,,,0", "12,root.a.d.s,700", slots=slots)
    assert (item.tags, item.attributes) == ({"k": "new"}, {"a": "b"})


@pytest.mark.parametrize("slots", [{}, {700: b"\0\0"}])
def test_a_series_whose_tags_did_not_come_is_made_without(slots) -> None:
    reduced = reduce("0,root.a.d.s,1,0,0,,x,700", slots=slots)
    assert [where for where, _ in reduced.failed] == ["root.a.d.s"]
    (item,) = reduced.items
    assert (item.alias, item.tags) == ("x", UNSET)


def test_without_a_tlog_series_with_tags_are_counted() -> None:
    reduced = reduce_text(b"0,root.a.d.s,1,0,0,,,700\n", None)
    assert (reduced.failed, reduced.untagged) == ([], 1)


def test_offsets_of_bad_lines_are_those_of_the_log() -> None:
    reduced = reduce("rubbish", "2,root.a", start=1 << 40)
    assert reduced.failed == [("rubbish", f"line at offset {1 << 40}: 'rubbish' is no operation")]
    assert reduced.items == [Group(path="root.a")]


def test_groups_come_first_and_the_series_of_a_device_together() -> None:
    found = items(
        "0,root.b.d.s,1,0,0,,,",
        "0,root.a.d.s,1,0,0,,,",
        "0,root.b.d.r,1,0,0,,,",
        "2,root.b",
        "2,root.a",
    )
    assert [each.path for each in found] == [
        "root.a",
        "root.b",
        "root.a.d.s",
        "root.b.d.r",
        "root.b.d.s",
    ]


def test_a_device_with_one_time_column_is_told_in_the_wider_form() -> None:
    (item,) = items(HEADER, "#aligned,root.a.d", "0,root.a.d.s,1,0,0,,,")
    assert item.aligned
