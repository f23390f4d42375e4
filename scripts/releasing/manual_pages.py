"""Man pages and shell completion, from the commands themselves.

click-man leaves out epilogs, where exit codes and examples stand, and escapes nothing.
"""

from __future__ import annotations

import datetime
import gzip
import re
from collections.abc import Iterator

import click
from click.shell_completion import get_completion_class

__all__ = ["SHELLS", "completion", "manual_pages", "page"]

SHELLS = {
    "bash": "usr/share/bash-completion/completions/{name}",
    "zsh": "usr/share/zsh/vendor-completions/_{name}",
    "fish": "usr/share/fish/vendor_completions.d/{name}.fish",
}
"""Shell -> where it looks for what completes a command."""


def completion(command: click.Command, name: str, shell: str) -> str:
    """What a shell reads to complete a command, as click makes it."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    made = kind(command, {}, name, f"_{name.replace('-', '_').upper()}_COMPLETE")
    # Not source(), which runs a bash to see whether it is new enough.
    return made.source_template % made.source_vars()


def manual_pages(command: click.Command, name: str, version: str, epoch: int) -> dict[str, bytes]:
    """File name -> man page of section 1, compressed, of a command and of all below it.

    Args:
        command: the whole program.
        name: that it is called by.
        version: for the foot of the page.
        epoch: seconds since 1970; its day stands in the foot.
    """
    day = datetime.datetime.fromtimestamp(epoch, datetime.UTC).date()
    return {
        f"{context.command_path.replace(' ', '-')}.1.gz": gzip.compress(
            page(context, f"tsferry {version}", day).encode(), mtime=0
        )
        for context in _below(command, name, None)
    }


def _below(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[click.Context]:
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from _below(found, each, context)


def page(context: click.Context, source: str, day: datetime.date) -> str:
    """The roff of one command."""
    command = context.command
    path = context.command_path
    title = path.replace(" ", "-")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH "{_text(title.upper())}" "1" "{day}" "{_text(source)}" "User Commands"',
        ".SH NAME",
        f"{_text(title)} \\- {_text(command.get_short_help_str(300))}",
        ".SH SYNOPSIS",
        f".B {_text(path)}",
        _line(usage),
    ]
    if command.help:
        lines += [".SH DESCRIPTION", *_paragraphs(command.help)]
    lines += _options(context)
    lines += _commands(context, title)
    if command.epilog:
        lines += [".SH NOTES", *_paragraphs(command.epilog)]
    if context.parent is not None:
        above = context.parent.command_path.replace(" ", "-")
        lines += [".SH SEE ALSO", f".BR {_text(above)} (1)"]
    return "\n".join(lines) + "\n"


def _options(context: click.Context) -> list[str]:
    lines: list[str] = []
    for each in context.command.get_params(context):
        record = each.get_help_record(context)
        if record is not None:
            names, said = record
            lines += [".TP", f"\\fB{_text(names)}\\fR", _line(said)]
    return [".SH OPTIONS", *lines] if lines else []


def _commands(context: click.Context, title: str) -> list[str]:
    if not isinstance(context.command, click.Group):
        return []
    lines = [".SH COMMANDS"]
    for each in context.command.list_commands(context):
        found = context.command.get_command(context, each)
        if found is not None and not found.hidden:
            lines += [".TP", f".BR {_text(f'{title}-{each}')} (1)"]
            lines += [_line(found.get_short_help_str(300))]
    return lines


def _paragraphs(text: str) -> Iterator[str]:
    r"""Paragraphs are filled, but for those that begin with click's mark \b: these stay."""
    for number, each in enumerate(re.split(r"\n\s*\n", _unindented(text).strip("\n"))):
        if number:
            yield ".PP"
        if each.startswith("\b"):
            yield ".nf"
            yield from (_line(line) for line in each.splitlines()[1:])
            yield ".fi"
        else:
            yield _line(" ".join(each.split()))


def _unindented(text: str) -> str:
    first, _, rest = text.replace("\f", "").partition("\n")
    margins = [len(line) - len(line.lstrip()) for line in rest.splitlines() if line.strip()]
    margin = min(margins, default=0)
    return "\n".join([first.lstrip(" "), *(line[margin:] for line in rest.splitlines())])


def _line(text: str) -> str:
    """A line of text: one that begins with a dot or a quote would be a request."""
    shown = _text(" ".join(text.split("\n")))
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown


def _text(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("~", "\\(ti")
