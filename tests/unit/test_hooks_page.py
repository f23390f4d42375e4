"""The page of hooks is made of the types that events are made of."""

from __future__ import annotations

import re
from typing import get_args

from common.hooks.hook_event import EventKind
from scripts import hooks_page


def test_each_kind_is_on_the_page_with_what_it_says() -> None:
    assert set(hooks_page.CONTENT) == set(get_args(EventKind))
    page = hooks_page.PAGE.read_text()
    kinds = re.findall(
        r"^\| `(\w+)` \| [^|]* \| [^|]* \|$", page.partition("## The event")[0], re.M
    )
    assert set(kinds) == set(get_args(EventKind))


def test_each_member_says_what_it_is() -> None:
    tables = hooks_page.PAGE.read_text().partition("## What events say")[2]
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", tables, flags=re.MULTILINE)
    assert len(rows) > 40
    assert [name for name, said in rows if said == "-"] == []
