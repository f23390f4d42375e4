"""The JSON of commands: nothing that a reader rounds, and times that people read."""

from __future__ import annotations

import datetime
import json
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from common.console.cli import emit_json
from common.console.json_form import (
    LISTS,
    MOMENTS,
    WIDE_NAMES,
    are_numbers,
    is_moment,
    is_wide,
    json_form,
    member_types,
)
from common.console.json_option import OpenForm
from common.wire import Struct
from common.wire.base import CommitTs, Time
from scripts import json_page


def _views() -> dict[type, None]:
    """Every type that a command writes, and those inside."""
    forms = map(json_page.forms, json_page.json_options().values())
    found = dict.fromkeys(form.kind for each in forms for form in each)
    waiting = list(found)
    while waiting:
        for each in json_page.inside(waiting.pop()):
            if each not in found:
                found[each] = None
                waiting.append(each)
    return {each: None for each in found if not issubclass(each, str | OpenForm)}


VIEWS = sorted(_views(), key=lambda each: each.__name__)
LARGE = 467_000_000_000_000_001
"""A commit timestamp of today; as a floating number it is another one."""


class Example(Struct):
    commit: CommitTs
    first: Time | None = None
    expires: float | None = None
    since: CommitTs = 0
    since_at: float | None = None
    seconds: float = 0.5


def written(value: object, capsys: pytest.CaptureFixture[str]) -> Any:
    emit_json(value)
    return json.loads(capsys.readouterr().out)


def test_numbers_of_64_bits_are_text_and_moments_stand_beside_as_iso_8601(
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = Example(commit=LARGE, first=-5, expires=1_800_000_000.25)
    assert written(example, capsys) == {
        "commit": str(LARGE),
        "first": "-5",
        "expires": 1_800_000_000.25,
        "expires_iso": "2027-01-15T08:00:00.250Z",
        "since": "0",
        "since_at": None,
        "since_at_iso": None,
        "seconds": 0.5,
    }


def test_objects_without_a_type_have_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        "commit": 7, "complete_until": 12, "newest_commit": None, "token_until": 0.0, "since": 3,
        "list": [{"ended": 1.5}], "large": 2**53 + 1, "size": 2**53, "yes": True, "at": None,
    }  # fmt: skip
    assert written(found, capsys) == {
        "commit": "7", "complete_until": "12", "newest_commit": None,
        "token_until": 0.0, "token_until_iso": "1970-01-01T00:00:00.000Z", "since": 3,
        "list": [{"ended": 1.5, "ended_iso": "1970-01-01T00:00:01.500Z"}],
        "large": "9007199254740993", "size": 2**53, "yes": True, "at": None,
    }  # fmt: skip


@dataclass
class Untyped:
    commit: int
    parts: tuple[int, ...]


def test_a_dataclass_has_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert written([Untyped(1, (LARGE,))], capsys) == [{"commit": "1", "parts": [str(LARGE)]}]


def test_a_moment_that_no_calendar_has_is_no_iso() -> None:
    for each in (float("nan"), float("inf"), 1e300, -1e15):
        assert json_form({"x_at": each})["x_at_iso"] is None


@pytest.mark.parametrize("view", VIEWS, ids=lambda each: each.__name__)
def test_what_a_command_writes_of_any_view_keeps_to_the_rules(view: type) -> None:
    form = json_form(filled(view), view)
    hints = typing.get_type_hints(view)
    assert {each for each in form if not each.endswith("_iso")} == set(member_types(view))
    check(form)
    for name, hint in hints.items():
        if float in (hint, *typing.get_args(hint)):
            is_span = re.search(
                r"second|lease|late_after|offset|lasts|age|behind|ahead|oldest\Z|heard\Z|cost|minimum|maximum|sum",
                name,
            )
            assert is_moment(name) or is_span, f"{view.__name__}.{name}: moment, or what?"


@pytest.mark.parametrize("view", VIEWS, ids=lambda each: each.__name__)
def test_each_member_that_is_a_commit_or_a_time_of_data_is_text(view: type) -> None:
    said, exact = view.__doc__ or "", member_types(view)
    for name, hint in typing.get_type_hints(view).items():
        if int in (hint, *typing.get_args(hint)):
            line = re.search(rf"^ +{name}: (.*)$", said, re.MULTILINE)
            is_commit = name in WIDE_NAMES or re.search(r"_(commit|time)\Z", name)
            is_commit = is_commit or re.search(
                r"\A(the )?(newest |oldest )?commit\b", line[1] if line else ""
            )
            is_commit = is_commit or f"{name}_at" in typing.get_type_hints(view)
            counts = {"FileSearch", "QueueStanding"}
            by_name = name in WIDE_NAMES and not issubclass(view, msgspec.Struct)
            if is_commit and view.__name__ not in counts:
                assert is_wide(exact[name]) or by_name, f"{view.__name__}.{name}"


def filled(hint: Any) -> Any:
    """A value of a type with the largest of everything."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if json_page.is_object(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{name: filled(each) for name, each in hints.items()})
    if origin is typing.Literal:
        return inner[0]
    if are_numbers(hint):
        return bytes([0, 255])
    if origin in LISTS:
        return (list if origin is Sequence else origin)([filled(inner[0])])
    if origin is dict:
        return {filled(inner[0]): filled(inner[1])}
    if inner:
        return filled(next(each for each in inner if each is not type(None)))
    simple = {int: LARGE, float: 1_800_000_000.25, str: "x", bool: True}
    return simple.get(hint, "x")


def check(form: Any) -> None:
    if isinstance(form, list):
        for each in form:
            check(each)
    elif isinstance(form, dict):
        for name, value in form.items():
            check(value)
            if isinstance(value, float) and is_moment(name):
                at = datetime.datetime.fromisoformat(form[f"{name}_iso"])
                assert at.timestamp() == value
    else:
        assert not isinstance(form, int) or abs(form) <= 2**53


def test_the_page_names_the_moments_that_have_other_names() -> None:
    with open("docs/json.md") as page:
        head = page.read().partition("<!--")[0]
    assert all(f"`{each}`" in head for each in MOMENTS)
