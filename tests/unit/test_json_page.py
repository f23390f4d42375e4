"""The page of what commands write is made of the types that they write."""

from __future__ import annotations

import re

from scripts import json_page


def test_each_member_says_what_it_is() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| .* \| (.*) \|$", json_page.PAGE.read_text(), flags=re.MULTILINE
    )
    assert len(rows) > 200
    silent = [name for name, said in rows if said == "-"]
    assert len(silent) < len(rows) / 4, silent
