"""The list of `scripts/mutations` is whole and alive; in the long tier all of it is done."""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
from collections.abc import Iterator

import pytest

from tests.support.architecture import ROOT

_spec = importlib.util.spec_from_file_location("mutations", ROOT / "scripts" / "mutations.py")
assert _spec is not None
assert _spec.loader is not None
mutations = sys.modules["mutations"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(mutations)

LIST = mutations.read()
FLUSHES = ("sync", "sync_dir", "sync_file", "flush_names", "fsync", "fdatasync")
SPARED = {
    ("receiver/metadata/log/checkpoints.py", "_Writer"): "a later flush covers it",
}
"""Flushes that no promise hangs on, and why."""


@pytest.mark.parametrize("mutation", LIST, ids=lambda each: each.name)
def test_what_is_taken_out_is_there_and_its_catchers_are_too(mutation):
    mutation.source()
    assert mutation.tests
    for test in mutation.tests:
        file, _, name = test.partition("::")
        assert not name or name.partition("[")[0] in defined_in(file), test


@functools.cache
def defined_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return mutations.Scratch(tmp_path_factory.mktemp("sources"))


@pytest.mark.long
@pytest.mark.parametrize("mutation", LIST, ids=lambda each: each.name)
def test_what_is_taken_out_is_seen(scratch, mutation):
    assert scratch.missed_by(mutation) == []


def flushes() -> Iterator[tuple[str, str, int]]:
    """(file, innermost class or function, line) of each call that flushes."""
    for package in ("common", "sender", "receiver"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield from _in(str(path.relative_to(ROOT)), ast.parse(path.read_text()), ())


def _in(file: str, node: ast.AST, scopes: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        scopes = (*scopes, node.name)
    if isinstance(node, ast.Call) and _name(node.func) in FLUSHES:
        yield file, scopes[0] if scopes else "", node.lineno
    if isinstance(node, ast.Call) and _name(node.func) == "flush" and "durable" in file:
        yield file, scopes[0] if scopes else "", node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _in(file, child, scopes)


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def test_every_flush_of_the_programs_is_taken_out_once():
    touched = {(each.file, line) for each in LIST for line in each.lines()}
    missing = [
        f"{file}:{line}"
        for file, scope, line in flushes()
        if (file, line) not in touched and (file, scope) not in SPARED
    ]
    assert missing == []


def test_a_list_that_rots_is_seen(tmp_path):
    (tmp_path / "x.py").write_text("a = 1\na = 1\n")
    make = mutations.Mutation
    for old, new, why in (
        ("a = 1\n", "", "2 times"),
        ("b", "", "0 times"),
        ("a = 1\na = 1\n", "a = (", "no Python"),
        ("a = 1\na = 1\n", "a = 1\na = 1\n", "changes nothing"),
    ):
        with pytest.raises(ValueError, match=why):
            make("x", "x.py", old, new, ()).source(tmp_path)
