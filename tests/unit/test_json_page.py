"""The pages of what commands write and calls carry are made of the types that they write."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from scripts import json_page

API_BODIES = json_page.ROOT / "docs" / "reference" / "api_bodies.md"


@pytest.mark.parametrize("page", [json_page.PAGE, API_BODIES], ids=["json", "api_bodies"])
def test_each_member_says_what_it_is(page: Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", page.read_text(), flags=re.MULTILINE)
    assert len(rows) > 200
    assert [name for name, said in rows if said.strip() in ("", "-")] == []


def test_each_command_with_json_says_what_it_writes() -> None:
    found = json_page.json_options()
    assert len(found) > 80
    for words, option in found.items():
        assert [each.kind for each in json_page.forms(option)], words


def test_a_command_with_an_option_of_its_own_is_found_out() -> None:
    plain = click.Option(["--json", "as_json"], is_flag=True)
    with pytest.raises(ValueError, match="says what it writes"):
        json_page.forms(plain)


def test_nothing_on_the_page_is_an_object_of_anything() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*\bany\b.*) \| .* \|$", json_page.PAGE.read_text(), re.M)
    assert dict(rows) == {"value": "any"}  # of any key
