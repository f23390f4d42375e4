"""Hooks of MkDocs (mkdocs.yml): the site is made of the text that is read in the repository.

- README, CHANGELOG, CONTRIBUTING and SECURITY are pages of the site, README its first.
- Links between them and the pages of docs/ lead to the same place in both.
- Lists: GitHub takes two blanks for a level, Python-Markdown four.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

__all__ = ["BESIDE", "for_the_site", "on_files", "on_page_markdown"]

_ROOT = Path(__file__).resolve().parent.parent
BESIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
}
"""Files beside docs/, and the pages that they are."""
_LINK = re.compile(r"(?<=\]\()(?!https?:)([^)#\s]+)(?=[)#\s])")
_FENCE = re.compile(r"\s*(```|~~~)")
_INDENTED = re.compile(r"(?: {2})+(?=[-*] )")


def on_files(files: Files, config: Any) -> Files:
    """Add what lies beside docs/."""
    for name, page in BESIDE.items():
        text = (_ROOT / name).read_text(encoding="utf-8")
        content = f"# License\n\n```\n{text}```\n" if name == "LICENSE" else text
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The text of a page as Python-Markdown wants it."""
    if page.file.src_uri == BESIDE["CHANGELOG.md"]:
        page.meta["search"] = {"boost": 0.2}  # it names everything, and explains little
    return for_the_site(markdown, page.file.src_uri)


def for_the_site(markdown: str, page: str) -> str:
    """The text of a page, with the links and lists of the site.

    Args:
        markdown: as it stands in the repository.
        page: its path below docs/, or what `BESIDE` calls it.
    """
    lines, in_code = list[str](), False
    for line in markdown.split("\n"):
        if _FENCE.match(line):
            in_code = not in_code
        elif not in_code:
            line = _INDENTED.sub(lambda found: found[0] * 2, line)
            line = _LINK.sub(lambda found: _place(found[1], page), line)
        lines.append(line)
    return "\n".join(lines)


def _place(target: str, page: str) -> str:
    """Where a link leads in the site."""
    if page in BESIDE.values():
        return BESIDE.get(target) or target.removeprefix("docs/")
    up = "../" * page.count("/")
    outside = target.removeprefix(f"{up}../")
    return f"{up}{BESIDE[outside]}" if target != outside and outside in BESIDE else target
