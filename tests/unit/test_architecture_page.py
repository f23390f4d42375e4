"""The page of the architecture leads where it says: its paths, crash points and words are there."""

from __future__ import annotations

import ast
import functools
import re

from tests.support import architecture
from tests.support.architecture import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
OF_THE_DOOR = "durable."
"""Crash points of the door to the disk, which the page names together."""
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:sender|receiver|common|tests|scripts|conf|docs)/[\w./-]*")


def code(text: str) -> list[str]:
    return CODE.findall(text)


def paths(text: str) -> list[str]:
    return [each for each in code(text) if PATH.fullmatch(each)]


def cells(page: str, column: str) -> list[str]:
    """The cells of a column, of every table that has it."""
    found: list[str] = []
    at: int | None = None
    for line in page.splitlines():
        row = [each.strip() for each in line.strip("|").split("|")] if line[:1] == "|" else []
        if column in row:
            at = row.index(column)
        elif not row:
            at = None
        elif at is not None and not row[0].startswith("---"):
            found.append(row[at])
    return found


def section(page: str, title: str) -> str:
    return page.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


@functools.cache
def points_in_the_source() -> set[str]:
    return {
        argument.value
        for module in architecture.modules()
        for node in module.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "crash.point"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }


def points_on_the_page() -> set[str]:
    return {each for cell in cells(PAGE, "crash points") for each in code(cell)}


def words() -> list[tuple[str, str]]:
    """A path and the class in it that bears a word."""
    found = [code(cell) for cell in cells(section(PAGE, "Words"), "where")]
    return [(each[0], each[1]) for each in found if len(each) == 2]


def test_every_path_on_the_page_is_there():
    there = {each: ROOT / each for each in paths(PAGE)}
    missing = [
        each
        for each, path in there.items()
        if not (path.is_dir() if each.endswith("/") else path.exists())
    ]
    assert missing == []


def test_no_step_is_on_the_page_twice():
    """Two that changed one line at a time leave both."""
    steps = [each for each in cells(PAGE, "step") if not each.startswith("-")]
    assert sorted(set(steps)) == sorted(steps)
    assert [each for each in steps if each.startswith("18 ")] != []


def test_every_crash_point_on_the_page_is_in_the_source():
    assert points_on_the_page() - points_in_the_source() == set()


def test_every_crash_point_of_the_source_is_on_the_page():
    missing = points_in_the_source() - points_on_the_page()
    assert {each for each in missing if not each.startswith(OF_THE_DOOR)} == set()


def test_every_word_is_borne_by_the_class_that_is_named():
    trees = {module.name: module.tree for module in architecture.modules()}
    missing = [
        (path, name)
        for path, name in words()
        if name not in classes(trees[path.removesuffix(".py").replace("/", ".")])
    ]
    assert missing == []


def test_every_test_that_is_named_is_in_its_file():
    both = zip(cells(PAGE, "its test"), cells(PAGE, "in"), strict=True)
    named = [(code(test)[0], code(where)[0]) for test, where in both]
    missing = [
        (test, where)
        for test, where in named
        if f"def {test}(" not in (ROOT / where).read_text(encoding="utf-8")
    ]
    assert missing == []
    assert len(named) > 20


def classes(tree: ast.Module) -> set[str]:
    return {each.name for each in tree.body if isinstance(each, ast.ClassDef)}


def test_the_page_was_read():
    assert len(paths(PAGE)) > 100
    assert len(points_on_the_page()) > 50
    assert len(words()) > 20
