"""The page of troubles has messages in the words of the source, and of some kinds all."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

from tests.support import architecture
from tests.support.architecture import ROOT, Module

PAGE = (ROOT / "docs" / "manual" / "trouble.md").read_text(encoding="utf-8")
HOLE = "\0"
"""In place of what differs."""
CELL = re.compile(r"``(.+?)``|`([^`]+)`")
COMPLETE = {
    "common.console.root_mistakes": "_made_by_root _roots",
    "common.system_errors": "system_error _not_permitted _not_made cannot_listen",
    "sender.select.data_dirs": "raise return",
    "sender.send.connection.transport": "raise",
    "receiver.datadirs.directory_finding": "raise",
    "receiver.load.incoming_space": "problem",
    "receiver.load.service": "concerns problem",
    "receiver.operator.asked_work.background_tasks": "background_concerns",
    "receiver.operator.edges.ending": "ending_concerns exchanged_concerns",
    "receiver.operator.edges.lateness": "label_concerns",
    "receiver.operator.places.node_lists": "node_concerns",
    "receiver.operator.places.remote_nodes": "remote_node_concerns",
    "receiver.operator.stored.storage": "storage_concerns",
}
"""Modules of which each message is on the page."""


def text_of(node: ast.AST) -> str | None:
    """What a string of the source says, with holes for its values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace("%s", HOLE).replace("%d", HOLE)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(each) or HOLE for each in node.values)
    return None


@functools.cache
def texts() -> list[str]:
    """All strings of the programs."""
    found = {
        text_of(node)
        for module in architecture.modules()
        if module.name.split(".")[0] in ("common", "sender", "receiver")
        for node in module.nodes
        if isinstance(node, ast.Constant | ast.JoinedStr)
    }
    return [each for each in found if each and " " in each]


def said() -> list[str]:
    """The messages on the page: what stands in the first column, as code."""
    rows = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `")]
    return [each for row in rows for pair in CELL.findall(row) for each in pair if each]


class Message:
    """A message of the page."""

    def __init__(self, text: str) -> None:
        self._parts = text.split("...")
        self._longest = max(self._parts, key=len)
        self._pattern = re.compile(".*".join(map(re.escape, self._parts)), re.DOTALL)

    def is_in(self, text: str) -> bool:
        """Whether a string of the source says it."""
        return self._longest in text and self._pattern.search(text) is not None


def test_each_message_stands_on_the_page_as_it_is_said():
    of_the_system = "...: Connection refused"
    known = texts()
    invented = [
        text
        for text in said()
        if text != of_the_system and not any(map(Message(text).is_in, known))
    ]
    assert invented == []


def messages_of(module: Module, where: str) -> Iterator[str]:
    names = set(where.split())
    for node in module.nodes:
        is_function = isinstance(node, ast.FunctionDef) and node.name in names
        is_raise = isinstance(node, ast.Raise) and "raise" in names
        if is_function or is_raise:
            docstring = ast.get_docstring(node, clean=False) if is_function else None
            inside = [each for each in ast.walk(node) if isinstance(each, ast.JoinedStr)]
            parts = {id(part) for each in inside for part in each.values}
            for inner in ast.walk(node):
                text = None if id(inner) in parts else text_of(inner)
                if text and text != docstring and len(text.replace(HOLE, "").split()) > 3:
                    yield text


def test_each_message_of_some_kinds_is_on_the_page():
    found = {each.name: each for each in architecture.modules()}
    messages = [Message(each) for each in said()]
    missing = [
        f"{name}: {text}"
        for name, where in COMPLETE.items()
        for text in messages_of(found[name], where)
        if not any(each.is_in(text) for each in messages)
    ]
    assert missing == []


def test_a_message_that_nobody_says_is_noticed():
    assert not any(map(Message("the moon is ... on a ...").is_in, texts()))
    assert len(said()) > 90
