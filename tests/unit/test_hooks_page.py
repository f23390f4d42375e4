"""The page of hooks is made of the types that events are made of."""

from __future__ import annotations

import json
import re
from typing import get_args

import msgspec
import pytest

from common.hooks.hook_event import EventKind, HookSource, made_event
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


def _wide_numbers(form: object) -> list[object]:
    if isinstance(form, dict):
        return [one for each in form.values() for one in _wide_numbers(each)]
    if isinstance(form, list):
        return [one for each in form for one in _wide_numbers(each)]
    return [form] if isinstance(form, int) and abs(form) > 1 << 53 else []


@pytest.mark.parametrize(
    "content", dict.fromkeys(hooks_page.CONTENT.values()), ids=lambda each: each.__name__
)
def test_no_number_of_an_event_is_one_that_a_reader_rounds(content: type[msgspec.Struct]) -> None:
    large = 470945127124992001
    known = {"commit": large, "first": -large, "last": large, "since": 5.0, "heard_at": None}
    fields = msgspec.structs.fields(content)
    plain = {each.name: {str: "x", int: 1, float: 0.5}.get(each.type, ()) for each in fields}
    plain |= {name: value for name, value in known.items() if name in plain}
    if "kinds" in plain:
        plain["kinds"] = {"late": 1}
    event = made_event(HookSource("receiver", "u", "c"), "test", content(**plain), now=1.0)
    assert _wide_numbers(json.loads(event.line())) == []
    for name in {"commit", "first", "last"} & plain.keys():
        assert event.what[name] == str(plain[name])
    for name in {"since", "heard_at"} & plain.keys():
        assert f"{name}_iso" in event.what
