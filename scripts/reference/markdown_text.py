"""Text of the code as Markdown that GitHub and MkDocs read alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["anchor", "code", "headed", "prose", "table"]

_SPAN = re.compile(r"(`+)([^`]+)\1")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*[a-z])")
_SPECIAL = re.compile(r"([*\[\]]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")


def prose(text: str) -> str:
    """A text of a docstring or of help: spans of code stay, all else stands as it is written."""
    flat = " ".join(text.split())
    parts, at = list[str](), 0
    for span in _SPAN.finditer(flat):
        parts += [_plain(flat[at : span.start()]), code(span[2])]
        at = span.end()
    return "".join([*parts, _plain(flat[at:])])


def _plain(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # What begins with two dashes is an option; all that is special to Markdown is not meant so.
    parts = _OPTION.split(text)
    return "".join(
        code(each) if at % 2 else _SPECIAL.sub(r"\\\1", each) for at, each in enumerate(parts)
    )


def code(text: str) -> str:
    """A span of code."""
    return f"`{text}`"


def table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table, which ends its paragraph."""
    heads = list(headers)
    lines = [heads, ["---"] * len(heads), *map(list, rows)]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


def headed(mark: str, title: str, *paragraphs: str) -> str:
    """A heading and what stands below it; empty paragraphs are left out."""
    return "\n\n".join([f"{mark} {title}", *(each.strip("\n") for each in paragraphs if each)])


def anchor(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    plain = re.sub(r"[^\w\- ]", "", re.sub(r"[`*\\]", "", title).strip().lower())
    return plain.replace(" ", "-")
