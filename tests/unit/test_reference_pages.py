"""The pages of the manual that are made of the code have what the code has."""

from __future__ import annotations

import re
from dataclasses import replace

import click
import msgspec
import pytest

from common.config import keys
from common.config.keys import LeafNode
from receiver.web.app import ROUTES
from scripts import reference_pages
from scripts.reference import (
    api_page,
    commands_page,
    configuration_page,
    errors_page,
    messages_page,
)
from scripts.reference.markdown_text import anchor, prose, table
from tests.support.architecture import PACKAGES, ROOT

REFERENCE = ROOT / "docs" / "reference"


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", reference_pages.PAGES, ids=lambda path: path.stem)
def test_a_page_is_what_the_code_makes_of_it(path) -> None:
    said = path.read_text(encoding="utf-8")
    assert reference_pages.written(path) == said, "python -m scripts.reference_pages"


def test_a_page_without_a_place_for_what_is_made_is_named() -> None:
    for make in reference_pages.PAGES.values():
        with pytest.raises(ValueError, match="the page"):
            make("# A page")


@pytest.mark.parametrize(("program", "root"), commands_page.PROGRAMS, ids=lambda each: each.name)
def test_every_command_stands_on_the_page_with_its_options(program, root) -> None:
    sections = re.split(r"\n##+ ", page("commands.md"))
    by_title = {each.partition("\n")[0].strip("`"): each for each in sections}
    for context, command in commands_page.commands(program, root):
        section = by_title[context.command_path]
        for option in (each for each in command.params if isinstance(each, click.Option)):
            if option.name not in ("help", "version"):
                assert f"`{option.opts[0]}`" in section, (context.command_path, option.opts)


@pytest.mark.parametrize(("program", "root"), commands_page.PROGRAMS, ids=lambda each: each.name)
def test_every_command_has_an_example_that_begins_with_its_program(program, root) -> None:
    silent = [
        context.command_path
        for context, command in commands_page.commands(program, root)
        if not isinstance(command, click.Group) and f"{program.name} " not in (command.epilog or "")
    ]
    assert silent == []


@pytest.mark.parametrize(("program", "root"), commands_page.PROGRAMS, ids=lambda each: each.name)
def test_every_command_and_option_says_what_it_is(program, root) -> None:
    silent = []
    for context, command in commands_page.commands(program, root):
        silent += [] if command.help else [context.command_path]
        silent += [
            f"{context.command_path} {option.opts[0]}"
            for option in command.params
            if isinstance(option, click.Option) and not option.help
        ]
    assert silent == []


@pytest.mark.parametrize("program", configuration_page.PROGRAMS, ids=lambda each: each.name)
def test_every_key_says_what_it_is(program) -> None:
    def silent(schema: type[msgspec.Struct]) -> list[str]:
        said = configuration_page.meanings(schema)
        found = []
        for field, node in keys.fields(schema):
            if not isinstance(node, LeafNode):
                found += silent(node.schema)
            elif len(said.get(field.name, "").split()) < 2:
                found.append(f"{schema.__name__}.{field.name}")
        return found

    assert silent(program.schema) == []


def test_every_key_of_the_configuration_has_a_row() -> None:
    made = page("configuration.md").partition(reference_pages.MARK)[2]
    rows = re.findall(r"^\| `(\w+)` \|", made, flags=re.MULTILINE)
    known = [
        key.rpartition(".")[2]
        for program in configuration_page.PROGRAMS
        for key in keys.keys(program.schema)
    ]
    assert sorted(rows) == sorted(known)


def test_every_variable_of_the_environment_is_on_the_page() -> None:
    read = {
        name
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r"TSFERRY_[A-Z_]+", path.read_text(encoding="utf-8"))
        if not name.startswith("TSFERRY_EVENT")  # what a hook is given: docs/hooks.md
    }
    assert len(read) > 5
    shown = page("configuration.md")
    assert [name for name in sorted(read) if f"`{name}" not in shown] == []


def test_every_error_of_the_source_is_on_the_page() -> None:
    """What is imported is not enough: the text knows of all that have a code of their own."""
    block = re.compile(r"^class (\w+)\(.+\):\n(?:(?!class |def ).*\n)*?    slug = ", re.MULTILINE)
    expected = {
        name
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for name in block.findall(path.read_text(encoding="utf-8"))
    }
    assert len(expected) > 80
    assert {each.__name__ for each in errors_page.classes()} == expected
    shown = page("errors.md")
    assert [name for name in expected if f"`{name}`" not in shown] == []


def test_an_exit_code_that_is_new_is_seen(monkeypatch) -> None:
    (program, root), *others = commands_page.PROGRAMS
    more = replace(program, exit_codes={**program.exit_codes, 9: "something else"})
    before = errors_page.exit_codes()
    monkeypatch.setattr(errors_page, "PROGRAMS", ((more, root), *others))
    assert errors_page.exit_codes() != before
    assert "| 9 | something else | - | - |" in errors_page.exit_codes()


def test_every_call_is_on_the_page_and_what_it_takes_and_answers_on_the_other() -> None:
    calls, bodies = page("api.md"), page(api_page.BODIES)
    for row in ROUTES:
        assert f"### `{row.method} {row.template}`\n" in calls
    for name in set(re.findall(rf"\({api_page.BODIES}#(\w+)\)", calls)):
        assert name in {each.lower() for each in re.findall(r"^## (\w+)$", bodies, re.MULTILINE)}


# -- text as Markdown ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a `b*` c", "a `b*` c"),
        ("``x`` and\n    y", "`x` and y"),
        ("root.** is", r"root.\*\* is"),
        ("with --dry-run, and - alone", "with `--dry-run`, and - alone"),
        ("<uuid> & more", "&lt;uuid&gt; &amp; more"),
        ("schema_dir and _private", r"schema_dir and \_private"),
        ("a [list]", r"a \[list\]"),
    ],
)
def test_a_text_is_shown_as_it_is_written(said, shown) -> None:
    assert prose(said) == shown


def test_a_cell_ends_at_no_bar_of_its_text() -> None:
    assert table(["a"], [["one | two"]]).endswith("| one \\| two |\n")


@pytest.mark.parametrize(
    ("title", "found"),
    [
        ("Exit codes", "exit-codes"),
        ("`[[receiver]]` of the sender", "receiver-of-the-sender"),
        ("`GET /v1/files/{id}`", "get-v1filesid"),
        ("Errors & codes", "errors--codes"),
    ],
)
def test_an_anchor_is_made_as_the_pages_make_it(title, found) -> None:
    assert anchor(title) == found


def test_each_code_of_an_error_has_its_way_out_and_what_is_raised_stands_below_it() -> None:
    codes = {"internal", *(each.slug for each in errors_page.classes())}
    assert set(messages_page.ways_out()) == codes
    sections = {each.partition("`")[0]: each for each in page("messages.md").split("\n## `")[1:]}
    assert set(sections) == codes
    found = messages_page.messages()
    for code, said in found.items():
        assert [each for each in said if each not in sections[code]] == []
    assert sum(map(len, found.values())) > 800
    assert "no receiver is running for ..." in sections["unreachable"], "of its constructor"


def test_each_message_of_a_code_with_several_has_a_way_out_of_its_own() -> None:
    """A conflict is one of owners, nodes or directories: no one sentence is right for all."""
    found, whatever = messages_page.messages(), messages_page.whatever_the_message()
    several = {code for code, said in found.items() if len(said) > 1}
    assert whatever - several == set(), "of one message, or of none, that is no word"
    left = [
        (code, said)
        for code in sorted(several - whatever)
        for said in found[code]
        if messages_page.way_of(code, said) is None and not messages_page.says_itself(said)
    ]
    assert left == []
    lines = set(page("messages.md").splitlines())
    for code, said in found.items():
        for each in said:
            way = messages_page.way_of(code, each)
            assert way is None or any(each in line and way in line for line in lines), each


def test_no_way_out_is_of_a_message_that_nobody_says() -> None:
    found = messages_page.messages()
    everything = {said for each in found.values() for said in each}
    own = messages_page.own_ways_out()
    assert own.keys() - everything == set()
    for code, ways in messages_page.ways_by_pattern().items():
        open_ = [each for each in found[code] if each not in own]
        for pattern, _ in ways:
            assert not re.search(pattern, ""), f"{code}: what comes to be said has a way of its own"
            mine = [each for each in open_ if re.search(pattern, each)]
            assert any(not messages_page.says_itself(each) for each in mine), (code, pattern)
            open_ = [each for each in open_ if each not in mine]


def test_the_way_out_of_an_error_says_what_somebody_does() -> None:
    patterns = (each for ways in messages_page.ways_by_pattern().values() for each in ways)
    ways = [*messages_page.ways_out().items(), *messages_page.own_ways_out().items(), *patterns]
    for code, way in ways:
        assert len(way.split()) > 2, code
        assert way.rstrip().endswith((".", ")")), code
