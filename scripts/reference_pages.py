"""Writes the pages of the manual that are made of the code; a test holds that they agree.

python -m scripts.reference_pages

What stands on a page before its mark is written by hand, and stays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts import hooks_page, json_page, metrics_page  # noqa: E402
from scripts.reference import (  # noqa: E402
    api_page,
    commands_page,
    configuration_page,
    errors_page,
    messages_page,
)

__all__ = ["MARK", "PAGES", "written"]

MARK = "<!-- made by python -m scripts.reference_pages -->\n"


def _behind(text: Callable[[], str]) -> Callable[[str], str]:
    """What makes a page of its head and of the text behind the mark."""

    def made(page: str) -> str:
        head, mark, _ = page.partition(MARK)
        if not mark:
            raise ValueError("the page does not say where the part begins that is made")
        return f"{head}{mark}\n{text()}"

    return made


_REFERENCE = ROOT / "docs" / "reference"
PAGES: dict[Path, Callable[[str], str]] = {
    _REFERENCE / "commands.md": _behind(commands_page.text),
    _REFERENCE / "configuration.md": _behind(configuration_page.text),
    _REFERENCE / "errors.md": _behind(errors_page.text),
    _REFERENCE / "messages.md": _behind(messages_page.text),
    _REFERENCE / "api.md": _behind(api_page.text),
    _REFERENCE / api_page.BODIES: _behind(api_page.bodies_text),
    json_page.PAGE: json_page.written,
    metrics_page.PAGE: metrics_page.written,
    hooks_page.PAGE: hooks_page.written,
}
"""Each page that is made, and what makes it of the page that is there."""


def written(path: Path) -> str:
    """The page as it should be.

    Raises:
        ValueError: it has no place for what is made.
    """
    return PAGES[path](path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for each in PAGES:
        each.write_text(written(each), encoding="utf-8")
