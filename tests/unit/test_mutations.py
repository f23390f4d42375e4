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


def test_what_is_taken_out_is_there_and_its_catchers_are_too():
    for mutation in LIST:
        mutation.source()
        assert mutation.tests, mutation.name
        for test in mutation.tests:
            file, _, name = test.partition("::")
            assert not name or name.partition("[")[0] in defined_in(file), test


@functools.cache
def defined_in(file: str) -> dict[str, list[ast.expr]]:
    """Functions of a file -> their marks, behind those of the whole file."""
    tree = ast.parse((ROOT / file).read_text())
    of_all = [
        mark
        for each in tree.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "pytestmark"
        for mark in (each.value.elts if isinstance(each.value, ast.List) else [each.value])
    ]
    functions = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef))
    return {each.name: [*of_all, *each.decorator_list] for each in functions}


def left_to_chance(marks: list[ast.expr], case: str) -> bool:
    """Whether the default tier may leave out a test, or the case of it that is named."""
    always: str | None = case
    for mark in marks:
        if ast.unparse(mark) == "pytest.mark.long":
            return True
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.few":
            (always,) = [ast.literal_eval(each.value) for each in mark.keywords] or (None,)
    return bool(case) and (always is None or always not in case)


def test_what_sees_a_mutation_runs_in_the_default_tier():
    for mutation in LIST:
        for test in mutation.tests:
            file, _, name = test.partition("::")
            name, bracket, case = name.partition("[")
            if name:
                assert not left_to_chance(defined_in(file)[name], bracket + case), test


def test_a_catcher_that_is_left_out_is_seen():
    def left_out(marks, case=""):
        return left_to_chance([ast.parse(each, mode="eval").body for each in marks], case)

    assert left_out(["pytest.mark.long"])
    assert left_out(["pytest.mark.few(1)"], "[a-b]")
    assert left_out(["pytest.mark.few(1, always='c')"], "[a-b]")
    assert left_out(["pytest.mark.few(1, always='a')", "pytest.mark.few(1)"], "[a-b]")
    assert not left_out(["pytest.mark.few(1, always='a-')", "pytest.mark.slow"], "[a-b]")
    assert not left_out(["pytest.mark.few(2)"])
    assert not left_out(["pytest.mark.slow"], "[a]")


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
