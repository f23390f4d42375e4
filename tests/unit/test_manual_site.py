"""The manual: its links lead somewhere, here and on the site, and the site needs no network."""

from __future__ import annotations

import functools
import logging
import re
from collections import Counter
from pathlib import Path

import pytest

from scripts.manual_site import BESIDE, for_the_site
from scripts.reference.markdown_text import anchor
from tests.support.architecture import ROOT

PAGES = (
    *(ROOT / each for each in BESIDE if each.endswith(".md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
CODE = re.compile(r"(?ms)^ *(```|~~~).*?^ *\1 *$")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"(?m)^#+ (.+)$")


def text(path: Path) -> str:
    """A page without its blocks of code."""
    return CODE.sub("", path.read_text(encoding="utf-8"))


@functools.cache
def anchors(path: Path) -> set[str]:
    """Of the headings, as GitHub makes them: the second of one name ends in -1."""
    found, seen = set(), Counter[str]()
    for heading in HEADING.findall(text(path)):
        plain = anchor(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))
        found.add(f"{plain}-{seen[plain]}" if seen[plain] else plain)
        seen[plain] += 1
    return found


def leading_nowhere(path: Path) -> list[str]:
    said = []
    for link in LINK.findall(text(path)):
        if re.match(r"https?:", link):
            continue
        place, _, fragment = link.partition("#")
        target = (path.parent / place).resolve() if place else path
        if not target.exists() or (fragment and fragment not in anchors(target)):
            said.append(link)
    return said


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(path) -> None:
    assert leading_nowhere(path) == []


def test_a_link_that_leads_nowhere_is_seen(tmp_path) -> None:
    (tmp_path / "other.md").write_text("# Other\n## One `two`\n## One two\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n[a](other.md) [b](other.md#one-two-1) [c](#page) [d](https://x.example/)\n"
        "[e](away.md) [f](other.md#three) [g](#four)\n```\n[h](away.md)\n```\n"
    )
    assert leading_nowhere(page) == ["away.md", "other.md#three", "#four"]


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)
    there = [str(each.relative_to(ROOT / "docs")) for each in (ROOT / "docs").rglob("*.md")]
    assert sorted(named) == sorted([*there, *BESIDE.values()])


def test_the_readme_leads_to_every_page() -> None:
    named = set(
        re.findall(r"\]\(docs/([^)#]+\.md)", (ROOT / "README.md").read_text(encoding="utf-8"))
    )
    there = {str(each.relative_to(ROOT / "docs")) for each in (ROOT / "docs").rglob("*.md")}
    assert there - named == {"reference/api_bodies.md"}  # which the page of calls leads to


@pytest.mark.parametrize(
    ("page", "line", "shown"),
    [
        ("index.md", "[a](docs/sql.md#at) [b](SECURITY.md)", "[a](sql.md#at) [b](security.md)"),
        ("index.md", "[a](https://x.example/docs/a)", "[a](https://x.example/docs/a)"),
        ("changelog.md", "[a](docs/reference/api.md)", "[a](reference/api.md)"),
        ("sql.md", "[a](../README.md#install) [b](tree.md)", "[a](index.md#install) [b](tree.md)"),
        ("reference/api.md", "[a](../../CHANGELOG.md)", "[a](../changelog.md)"),
        ("reference/api.md", "[a](../sql.md) [b](errors.md)", "[a](../sql.md) [b](errors.md)"),
        ("sql.md", "- one\n  - two\n    - three", "- one\n    - two\n        - three"),
        ("sql.md", "```\n  - [a](../README.md)\n```", "```\n  - [a](../README.md)\n```"),
    ],
)
def test_a_page_reads_on_the_site_as_in_the_repository(page, line, shown) -> None:
    assert for_the_site(line, page) == shown


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_asks_nobody(tmp_path, caplog, monkeypatch) -> None:
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path)))
    assert caplog.records == []
    asked = re.compile(
        r"""(?:<(?:script|img|iframe)[^>]*\ssrc|<link[^>]*\shref)=["']?(?:https?:)?//|url\(["']?https?:"""
    )
    built = [*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")]
    assert len(built) > 30
    assert [each.name for each in built if asked.search(each.read_text(encoding="utf-8"))] == []
    search = (tmp_path / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "tsferry-receiver owners transfer" in search
