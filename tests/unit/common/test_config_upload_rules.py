from __future__ import annotations

import math

import pytest

from common.config import UploadRules

BY_GROUP = [
    {"group": "root.raw", "upload": "never"},
    {"group": "root.slow", "upload": "12h"},
    {"upload": "1d"},
]


@pytest.mark.parametrize("plain", ["at once", "never", "30d", BY_GROUP, BY_GROUP[:2]])
def test_rules_are_read_back_as_they_are_written(plain):
    assert UploadRules.parse(plain).to_plain() == plain


def test_the_first_rule_that_holds_decides_and_else_files_go_at_once():
    rules = UploadRules.parse(BY_GROUP)
    assert rules.after("root.raw") == rules.after("root.raw.below") == math.inf
    assert rules.after("root.slow") == 43_200
    assert rules.after("root.rawer") == 86_400
    assert UploadRules.parse(BY_GROUP[:2]).after("root.x") == 0
    assert UploadRules().is_always_at_once
    assert not rules.is_always_at_once


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ("sometimes", "at once"),
        ([{"group": "root.a"}], "rule 1"),
        ([{"upload": "never"}, {"group": "root.a", "upload": "1d"}], "rule 2 is never reached"),
        ([{"group": 5, "upload": "1d"}], "rule 1: group"),
        ([{"group": "root.a", "upload": "1d", "x": 1}], "rule 1"),
        ({"upload": "1d"}, "list of rules"),
    ],
)
def test_what_is_no_rule_is_refused(plain, says):
    with pytest.raises(ValueError, match=says):
        UploadRules.parse(plain)
