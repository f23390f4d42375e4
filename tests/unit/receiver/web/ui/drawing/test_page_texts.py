import re

import pytest
from markupsafe import Markup

from receiver.web.ui.drawing import page_texts
from receiver.web.ui.drawing.page_templates import link
from receiver.web.ui.drawing.sparkline import sparkline
from tests.support.page_reader import HOSTILE


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (0, "0 s ago"),
        (59, "59 s ago"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (86_400 * 2 - 1, "47 h ago"),
        (86_400 * 2, "2 d ago"),
        (86_400 * 400, "400 d ago"),
        (-1, "1 s ago"),
        (-120, "in 2 min"),
    ],
)
def test_how_long_ago_a_moment_was(passed, text):
    assert f">{text}<" in page_texts.ago(lambda: 1e9)(1e9 - passed)


@pytest.mark.parametrize("seconds", [None, float("nan"), float("inf"), 1e300, -1e300])
def test_what_is_no_moment_is_a_dash(seconds):
    dash = "\N{EN DASH}"
    for shown in (page_texts.when, page_texts.stamp, page_texts.ago(lambda: 0.0)):
        assert shown(seconds) == dash


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("ms", 1_600_000_000_000, "2020-09-13 12:26:40Z"),
        ("us", 1_600_000_000_000_000, "2020-09-13 12:26:40Z"),
        ("ns", 1_600_000_000_000_000_000, "2020-09-13 12:26:40Z"),
        ("ms", -1, "1969-12-31 23:59:59Z"),
        ("ms", (1 << 63) - 1, "9223372036854775807"),
        ("ms", None, "\N{EN DASH}"),
    ],
)
def test_times_of_the_data_are_in_the_unit_of_the_files(unit, value, text):
    assert text in page_texts.data_time(unit)(value)


def test_names_move_no_text_and_markup_stays():
    assert "\\u202e" in page_texts.visible(HOSTILE)
    assert page_texts.visible(Markup("<b>\u202e</b>")) == "<b>\u202e</b>"
    assert page_texts.visible(None) == "\N{EN DASH}"
    assert page_texts.visible(5) == 5


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 files"), (1, "1 file"), (12_345, "12\u202f345 files")]
)
def test_numbers_go_with_their_words(count, text):
    assert page_texts.plural(count, "file") == text


@pytest.mark.parametrize("sizes", [[], [0] * 24, [5], [0, 1, 1 << 50]])
def test_bars_stay_within_the_line(sizes):
    drawn = sparkline(sizes)
    bars = re.findall(r'x="(\d+)" y="(\d+)" width="3" height="(\d+)"', drawn)
    assert len(bars) == sum(size > 0 for size in sizes)
    for x, y, height in bars:
        assert int(y) + int(height) == 20
        assert int(height) >= 1
        assert int(x) < max(4 * len(sizes), 1)
    assert "wide" in sparkline(sizes, wide=True)


def test_addresses_have_what_is_asked_and_nothing_that_is_empty():
    assert link() == "/ui/"
    assert link("edge", "../a b/<") == "/ui/edge/..%2Fa%20b%2F%3C"
    assert link("files", path="a&b=c", at=0, edge="", state=None) == "/ui/files?path=a%26b%3Dc&at=0"
    assert link(from_=50) == "/ui/?from=50"
