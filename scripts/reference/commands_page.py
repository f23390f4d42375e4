"""docs/reference/commands.md: the three programs, from what click knows of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from common.console.cli import Program
from receiver.cli import commands as receiver_commands
from receiver.spark.verify import verify_options
from receiver.spark.verify.cli import cli as verify
from scripts.reference.command_epilog import cut_epilog
from scripts.reference.markdown_text import anchor, code, headed, prose, table
from sender.cli import program as sender_program
from sender.cli.commands import cli as sender

__all__ = ["PROGRAMS", "commands", "text"]

PROGRAMS: tuple[tuple[Program, click.Command], ...] = (
    (sender_program.PROGRAM, sender),
    (receiver_commands.PROGRAM, receiver_commands.cli),
    (verify_options.PROGRAM, verify),
)
_OWN_HELP = ("--help", "--version")
_METAVARS = {"INTEGER": "N", "INTEGER RANGE": "N", "FLOAT": "N", "FLOAT RANGE": "N"}
_SAID = re.compile(r"  \[(default|env var): ([^\]]*(?:\[[^\]]*\][^\]]*)*)\]$")


def commands(
    program: Program, root: click.Command
) -> Iterator[tuple[click.Context, click.Command]]:
    """Each command with the context in which its usage is made, groups before what is in them."""
    yield from _below(click.Context(root, info_name=program.name), root)


def _below(
    context: click.Context, command: click.Command
) -> Iterator[tuple[click.Context, click.Command]]:
    yield context, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _below(click.Context(found, info_name=name, parent=context), found)


def text() -> str:
    """The page, behind its head."""
    return "\n\n".join(_program(program, root) for program, root in PROGRAMS) + "\n"


def _program(program: Program, root: click.Command) -> str:
    found = list(commands(program, root))
    own, rest = found[0], found[1:]
    several = headed(
        "###",
        f"Commands of {program.name}",
        table(
            ("command", "does"),
            (
                (f"[{code(_name(context))}](#{anchor(context.command_path)})", _first(command))
                for context, command in rest
                if not isinstance(command, click.Group) or command.invoke_without_command
            ),
        ),
    )
    return "\n\n".join(
        each
        for each in (
            headed("##", code(program.name), *_what(*own), _before(program), _codes(program)),
            several if rest else "",
            *(
                headed("###", code(context.command_path), *_what(context, each))
                for context, each in rest
            ),
        )
        if each
    )


def _name(context: click.Context) -> str:
    return context.command_path.partition(" ")[2]


def _first(command: click.Command) -> str:
    """The first sentence."""
    said = inspect.cleandoc(command.help or "").partition("\n\n")[0]
    return prose(re.split(r"(?<=[a-z`)])[.:;] ", " ".join(said.split()))[0].rstrip("."))


def _before(program: Program) -> str:
    if program is verify_options.PROGRAM:
        return ""
    return f"These options stand before the command: `{program.name} --config FILE COMMAND`."


def _codes(program: Program) -> str:
    named = ", ".join(map(str, program.exit_codes))
    return f"Exit codes: {named}; [what each says](errors.md#exit-codes)."


def _what(context: click.Context, command: click.Command) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```\n{context.command_path} {usage}\n```"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield prose(paragraph)
    rows = [_option(context, each) for each in command.params if isinstance(each, click.Option)]
    rows = [each for each in rows if each[0].split("`")[1] not in _OWN_HELP]
    if rows:
        yield table(("option", "is"), rows)
    if context.parent is not None:
        yield from _examples(command.epilog or "")


def _option(context: click.Context, option: click.Option) -> tuple[str, str]:
    names = ", ".join(code(each) for each in (*option.opts, *option.secondary_opts))
    said, values = option.help or "", dict[str, str]()
    while found := _SAID.search(said):
        values[found[1]] = found[2]
        said = said[: found.start()].rstrip()
    shown = values.get("default") or _default(option)
    if re.search(rf"\((?:default )?{re.escape(shown.strip('`'))}\)", said):
        shown = ""  # the text has it already
    if isinstance(option.type, click.Choice):
        choices = ", ".join(code(str(each)) for each in option.type.choices)
        said = f"{said} One of {choices}."
    elif not option.is_flag:
        metavar = option.make_metavar(context)
        names += f" {code(_METAVARS.get(metavar, metavar))}"
    if isinstance(option.envvar, str):
        said = f"{said} From the environment: `{option.envvar}`."
    if option.required:
        said = f"{said} Must be given."
    if option.multiple and "repeated" not in said:
        said = f"{said} May be repeated."
    return names, prose(f"{said} Default: {shown}." if shown else said)


def _default(option: click.Option) -> str:
    if option.is_flag or option.multiple or option.default == "":
        return ""
    if not isinstance(option.default, str | int | float):
        return ""
    return code(str(option.default))


def _examples(epilog: str) -> Iterator[str]:
    """What stands below a command: examples as lines to copy, exit codes, and what else is said."""
    cut = cut_epilog(epilog)
    if cut.examples:
        yield "Example:" if len(cut.examples) == 1 else "Examples:"
        yield "```\n" + "\n".join(cut.examples) + "\n```"
    if cut.said:
        yield prose(cut.said)
    if cut.codes:
        codes = "; ".join(f"{code} {said}".strip() for code, said in cut.codes.items())
        yield prose(f"Exit codes: {codes}. {cut.behind}")
