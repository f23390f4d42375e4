"""The pages of what commands write and calls carry are made of the types that they write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import json_page

API_BODIES = json_page.ROOT / "docs" / "reference" / "api_bodies.md"


@pytest.mark.parametrize("page", [json_page.PAGE, API_BODIES], ids=["json", "api_bodies"])
def test_each_member_says_what_it_is(page: Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", page.read_text(), flags=re.MULTILINE)
    assert len(rows) > 200
    assert [name for name, said in rows if said.strip() in ("", "-")] == []
