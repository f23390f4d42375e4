"""Man pages and shell completion, from the commands themselves.

click-man leaves out epilogs, where exit codes and examples stand, and escapes nothing.
"""

from __future__ import annotations

import datetime
import gzip
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
from click.shell_completion import get_completion_class

from scripts.reference.command_epilog import cut_epilog

__all__ = ["SHELLS", "Issue", "completion", "manual_pages", "page"]

SHELLS = {
    "bash": "usr/share/bash-completion/completions/{name}",
    "zsh": "usr/share/zsh/vendor-completions/_{name}",
    "fish": "usr/share/fish/vendor_completions.d/{name}.fish",
}
"""Shell -> where it looks for what completes a command."""
_COLUMNS = 78
"""Of a page on a terminal of 80."""
_BEHIND_OPTIONS = ("EXIT STATUS", "FILES", "NOTES", "EXAMPLES", "SEE ALSO")
"""Sections, in the order that man-pages(7) has them in."""


@dataclass(frozen=True)
class Issue:
    """What a page is made for.

    Attributes:
        source: program and version, for the foot.
        day: for the foot, too.
        documents: directory of the manual, where the page is installed.
    """

    source: str
    day: datetime.date
    documents: str


def completion(command: click.Command, name: str, shell: str) -> str:
    """What a shell reads to complete a command, as click makes it."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    made = kind(command, {}, name, f"_{name.replace('-', '_').upper()}_COMPLETE")
    # Not source(), which runs a bash to see whether it is new enough.
    return made.source_template % made.source_vars()


def manual_pages(
    command: click.Command, name: str, version: str, epoch: int, documents: str
) -> dict[str, bytes]:
    """File name -> man page of section 1, compressed, of a command and of all below it.

    Args:
        command: the whole program.
        name: that it is called by.
        version: for the foot of the page.
        epoch: seconds since 1970; its day stands in the foot.
        documents: directory that has the manual as `docs`.
    """
    day = datetime.datetime.fromtimestamp(epoch, datetime.UTC).date()
    issue = Issue(f"tsferry {version}", day, documents)
    return {
        f"{context.command_path.replace(' ', '-')}.1.gz": gzip.compress(
            page(context, issue).encode(), mtime=0
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


def page(context: click.Context, issue: Issue) -> str:
    """The roff of one command."""
    command = context.command
    path = context.command_path
    title = path.replace(" ", "-")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        _head(title, issue),
        ".SH NAME",
        f"{_text(title)} \\- {_text(_short(command))}",
        ".SH SYNOPSIS",
        f".B {_text(path)}",
        _line(usage),
    ]
    if command.help:
        lines += [".SH DESCRIPTION", *_paragraphs(command.help)]
    lines += _options(context)
    lines += _commands(context, title)
    behind = _epilog(command.epilog or "")
    if context.parent is None:
        behind["FILES"] = [*_files(title), *behind.get("FILES", ())]
    behind["SEE ALSO"] = _see_also(context)
    for section in _BEHIND_OPTIONS:
        if behind.get(section):
            lines += [f".SH {section}", *behind[section]]
    # Texts name pages of the manual as they lie in the sources.
    place = _text(f"{issue.documents}/docs/")
    return re.sub(r"(?<![\w/.])docs/", lambda _: place, "\n".join(lines) + "\n")


def _head(title: str, issue: Issue) -> str:
    """The request at the beginning; what stands in the middle gives way to a long name."""
    kind = "User Commands"
    if 2 * len(f"{title}(1)") + len(kind) + 2 > _COLUMNS:
        kind = "tsferry"
    return f'.TH "{_text(title.upper())}" "1" "{issue.day}" "{_text(issue.source)}" "{kind}"'


def _short(command: click.Command) -> str:
    """What apropos shows: no sentence."""
    said = command.get_short_help_str(300).rstrip(".")
    first, space, rest = said.partition(" ")
    return f"{first.lower() if first.istitle() else first}{space}{rest}"


def _options(context: click.Context) -> list[str]:
    lines: list[str] = []
    for each in context.command.get_params(context):
        record = each.get_help_record(context)
        if record is not None and record[1]:  # an argument without a word of its own is in SYNOPSIS
            names, said = record
            lines += [".TP", f"\\fB{_text(names)}\\fR", *_filled(said)]
    return [".SH OPTIONS", *lines] if lines else []


def _commands(context: click.Context, title: str) -> list[str]:
    if not isinstance(context.command, click.Group):
        return []
    lines = [".SH COMMANDS"]
    for each in context.command.list_commands(context):
        found = context.command.get_command(context, each)
        if found is not None and not found.hidden:
            lines += [".TP", f".BR {_text(f'{title}-{each}')} (1)"]
            lines += _filled(found.get_short_help_str(300))
    return lines


def _files(title: str) -> list[str]:
    name = title.removeprefix("tsferry-")
    return [
        ".TP",
        f".I /etc/tsferry/{name}.toml",
        "The configuration, unless \\-\\-config names another. Every key is",
        "in it, with its default.",
        ".TP",
        f".I /etc/tsferry/{name}.d/*.toml",
        "Lie over it, in the order of their names.",
    ]


def _see_also(context: click.Context) -> list[str]:
    above = context.parent
    if above is None:
        return ["The manual:", ".I docs/manual/first_steps.md", "and the pages beside it."]
    return [f".BR {_text(above.command_path.replace(' ', '-'))} (1)"]


def _epilog(epilog: str) -> dict[str, list[str]]:
    """The sections that an epilog is cut into: one of several paragraphs, or a single one."""
    found: dict[str, list[str]] = {}
    prose: list[str] = []
    for each in _cut(epilog):
        head, *rest = each.removeprefix("\b\n").splitlines() or [""]
        if each.startswith("\b") and head == "Exit codes:":
            found["EXIT STATUS"] = list(_codes(rest))
        elif each.startswith("\b") and head == "Examples:":
            found["EXAMPLES"] = list(_examples([line.strip() for line in rest]))
        elif "EXIT STATUS" in found and not each.startswith("Example"):
            found["EXIT STATUS"] += [".PP", *_filled(each)]
        else:
            prose.append(each)
    cut = cut_epilog("\n".join(prose))
    if cut.codes:
        lines = [f"{code} {said}" for code, said in cut.codes.items()]
        found["EXIT STATUS"] = [*_codes(lines), *([".PP"] if cut.behind else [])]
        found["EXIT STATUS"] += _filled(cut.behind)
    if cut.examples:
        found["EXAMPLES"] = list(_examples(cut.examples))
    if cut.said:
        found["NOTES"] = _filled(cut.said)
    return found


def _codes(lines: Sequence[str]) -> Iterator[str]:
    """A list of exit codes; a line without a number goes on with the last."""
    for each in lines:
        if code := re.match(r"\s*(\d+)\s*", each):
            yield from (".TP", f".B {code[0].strip()}")
            each = each[code.end() :]
        yield from _filled(each.strip()) or ["\\&"]


def _examples(lines: Sequence[str]) -> Iterator[str]:
    """Command lines, cut where they are too long, so that a shell takes them as they are shown."""
    for number, each in enumerate(lines):
        yield from [".PP"] if number else []
        yield from (".nf", ".RS 4")
        words = re.findall(r"(?:--[\w-]+ (?!-))?(?:'[^']*'|\S)+", each)  # an option and its value
        shown = words[:1]
        for word in words[1:]:
            if len(f"{shown[-1]} {word} \\") > _COLUMNS - 11:  # that of the section, and of .RS
                shown[-1] += " \\"
                shown.append(f"    {word}")
            else:
                shown[-1] += f" {word}"
        yield from map(_line, shown)
        yield from (".RE", ".fi")


def _paragraphs(text: str) -> Iterator[str]:
    r"""Paragraphs are filled, but for those that begin with click's mark \b: these stay."""
    for number, each in enumerate(_cut(text)):
        if number:
            yield ".PP"
        if each.startswith("\b"):
            yield ".nf"
            yield from (_line(line) for line in each.splitlines()[1:])
            yield ".fi"
        else:
            yield from _filled(each)


def _cut(text: str) -> list[str]:
    return re.split(r"\n\s*\n", _unindented(text).strip("\n"))


def _unindented(text: str) -> str:
    first, _, rest = text.replace("\f", "").partition("\n")
    margins = [len(line) - len(line.lstrip()) for line in rest.splitlines() if line.strip()]
    margin = min(margins, default=0)
    return "\n".join([first.lstrip(" "), *(line[margin:] for line in rest.splitlines())])


def _filled(text: str) -> list[str]:
    """Running text, in lines that may be cut elsewhere when they are shown."""
    lines = textwrap.wrap(text, 60, break_long_words=False, break_on_hyphens=False)
    return [_line(each) for each in lines]


def _line(text: str) -> str:
    """A line of text: one that begins with a dot or a quote would be a request."""
    shown = _text(text)
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown


def _text(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("~", "\\(ti")
