from __future__ import annotations

import pytest

from sender.select.filters import group_filter, matches


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("root.**", "root.a", True),
        ("root.**", "root.a.b.c", True),
        ("root.**", "root", True),
        ("root.**", "rooted.a", False),
        ("root.site1.**", "root.site1", True),
        ("root.site1.**", "root.site1.x", True),
        ("root.site1.**", "root.site10", False),
        ("root.*", "root.a", True),
        ("root.*", "root.a.b", False),
        ("root.*.wind", "root.x.wind", True),
        ("root.*.wind", "root.wind", False),
        ("root.**.wind", "root.wind", True),
        ("root.**.wind", "root.a.b.wind", True),
        ("root.site_*", "root.site_1", True),
        ("root.site_*", "root.siteX1", False),
        ("root.a.b", "root.a.b", True),
        ("root.a.b", "root.aXb", False),
        ("root.a+b", "root.aab", False),
        ("**", "anything", True),
        ("**", "root.x.y", True),
    ],
)
def test_a_pattern_fits(pattern, path, expected):
    assert matches(pattern, path) is expected


def test_exclude_wins_over_include():
    wanted = group_filter(("root.**",), ("root.test*", "root.lab.**"))
    assert wanted("root.turbine")
    assert not wanted("root.test_1")
    assert not wanted("root.lab.x")


def test_hostile_patterns_take_no_time():
    assert not matches("root." + "**." * 12 + "z", "root." + "a." * 40 + "y")


@pytest.mark.parametrize(
    ("part", "level", "expected"),
    [
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("*ab*ab*", "xabyabz", True),
        ("*ab*ab", "ab", False),
    ],
)
def test_stars_inside_a_level(part, level, expected):
    assert matches(f"root.{part}", f"root.{level}") is expected
