"""Commands and options that a text names are there: on pages, in messages, in help, in conf/."""

from __future__ import annotations

import re

import click
import pytest

from receiver.spark.backlog.backlog_command import main as backlog
from scripts.reference.commands_page import PROGRAMS
from tests.support import architecture
from tests.support.architecture import ROOT, Module
from tests.support.said_commands import (
    FOREIGN,
    Programs,
    Said,
    of_markdown,
    of_plain_text,
    of_python,
)

ROOTS = {program.name: root for program, root in PROGRAMS} | {"backlog": backlog}
HERE = Programs(ROOTS)
PAGES = (*sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("*.md")))
TEXTS = (*ROOT.glob("conf/*"), *ROOT.glob("receiver/**/*.html"))


def options_of_scripts() -> frozenset[str]:
    """What is called an option anywhere in scripts/: pages name them without the script."""
    found = set()
    for path in (ROOT / "scripts").rglob("*"):
        if path.is_file() and path.suffix in ("", ".py", ".sh"):
            found |= set(re.findall(r"--[a-z][a-z-]*[a-z]", path.read_text(encoding="utf-8")))
    return frozenset(found)


ON_PAGES = Programs(ROOTS, FOREIGN | options_of_scripts())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_on_a_page_is_there(path) -> None:
    said = of_markdown(path.read_text(encoding="utf-8"))
    assert [wrong for each in said for wrong in ON_PAGES.wrong(each)] == []


@pytest.mark.slow
def test_every_command_in_a_text_of_the_code_is_there() -> None:
    wrong = [
        f"{module.name}: {wrong}"
        for module in architecture.modules()
        for each in of_python(module)
        for wrong in HERE.wrong(each)
    ]
    assert wrong == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_command_in_conf_and_templates_is_there(path) -> None:
    said = of_plain_text(path.read_text(encoding="utf-8"))
    assert [wrong for each in said for wrong in HERE.wrong(each)] == []


def test_commands_were_read() -> None:
    lines = [
        each.text
        for path in PAGES
        for each in of_markdown(path.read_text(encoding="utf-8"))
        if "tsferry-" in each.text and each.is_code
    ]
    assert len(lines) > 150


# -- each kind of mistake can be seen ------------------------------------------------------------


@click.group()
@click.option("--config", "-c")
def program() -> None: ...


@program.group()
def owners() -> None: ...


@owners.command("list")
@click.option("--sender")
@click.option("--json", is_flag=True)
def list_them() -> None: ...


@owners.command()
@click.argument("device")
def release() -> None: ...


SMALL = Programs({"tsferry-receiver": program}, frozenset({"--theirs"}))


@pytest.mark.parametrize(
    "line",
    [
        "tsferry-receiver owners list --sender X --json",
        "tsferry-receiver --config a.toml owners release root.d1",
        "sudo tsferry-receiver owners list [--json]",
        "tsferry-receiver --help",
        "tsferry-receiver COMMAND",
        "owners list",
        "owners",
        "--json",
        "--theirs",
        "owned by root",
        "owners of files that went",
    ],
)
def test_what_is_there_is_fine(line) -> None:
    assert SMALL.wrong(Said(line, is_code=True)) == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("tsferry-receiver owner list", ["tsferry-receiver owner"]),
        ("tsferry-receiver owners show", ["tsferry-receiver owners show"]),
        ("tsferry-receiver owners release --json x", ["tsferry-receiver owners release --json"]),
        ("tsferry-receiver --file a owners", ["tsferry-receiver --file"]),
        ("owners drop", ["tsferry-receiver owners drop"]),
        ("owners drop <device> of it", ["tsferry-receiver owners drop"]),
        ("owners list --all", ["tsferry-receiver owners list --all"]),
        ("--ours", ["--ours"]),
    ],
)
def test_what_is_not_there_is_seen(line, wrong) -> None:
    assert SMALL.wrong(Said(line, is_code=True)) == wrong


def test_prose_may_go_on_behind_a_program() -> None:
    assert SMALL.wrong(Said("tsferry-receiver does not run", is_code=False)) == []
    said = Said("Example: tsferry-receiver owners list --all. Exit codes: 0", is_code=False)
    assert SMALL.wrong(said) == ["tsferry-receiver owners list --all"]


def test_a_text_of_the_code_is_read_with_what_is_filled_in() -> None:
    module = Module.of(
        "module",
        'def f(x):\n    """See `owners drop`."""\n'
        '    return f"say tsferry-receiver owners list --all {x}"\n',
    )
    found = [wrong for each in of_python(module) for wrong in SMALL.wrong(each)]
    assert sorted(found) == ["tsferry-receiver owners drop", "tsferry-receiver owners list --all"]


def test_a_page_is_read_with_its_blocks_and_spans() -> None:
    page = (
        "Say `owners\ndrop` or\n\n```\n$ tsferry-receiver owners \\\n    show\nowners away\n```\n"
    )
    found = [wrong for each in of_markdown(page) for wrong in SMALL.wrong(each)]
    assert sorted(found) == ["tsferry-receiver owners drop", "tsferry-receiver owners show"]
