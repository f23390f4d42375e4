"""What the pages show of the engine in Python runs as it stands there."""

from __future__ import annotations

import re

import pytest

from tests.support.architecture import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PRINTED = {
    "operation.md": "B A\n",
    "sql.md": (
        r"\('root.wind.d1', 'root.wind', False, 1, \d+, None\)\n"
        r"\('root.wind.d1', .*\n\('root.wind.d2', .*\n"
    ),
}


@pytest.mark.parametrize("page", PRINTED)
def test_an_example_in_python_runs_as_it_stands(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for example in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        exec(compile(example, page, "exec"), names)  # the later ones go on from the first
    assert re.fullmatch(PRINTED[page], capsys.readouterr().out)
