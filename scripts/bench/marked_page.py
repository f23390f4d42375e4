"""Parts of a page that a benchmark writes, between `<!-- name -->` and `<!-- / -->`."""

from __future__ import annotations

from pathlib import Path

__all__ = ["fill"]


def fill(page: Path, name: str, content: str) -> None:
    """Put a part into its place; the rest of the page is written by hand.

    Raises:
        SystemExit: the page has no such part.
    """
    text = page.read_text()
    begin, end = f"<!-- {name} -->\n", "<!-- / -->"
    before, found, rest = text.partition(begin)
    if not found:
        raise SystemExit(f"{page}: has no part {begin.strip()}")
    page.write_text(f"{before}{begin}{content}\n{rest[rest.index(end) :]}")
