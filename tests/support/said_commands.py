"""Commands and options that a text speaks of, and whether there are such ones.

`tsferry-receiver owners list --sender X` names a program, commands of it and options of these.
Between back-ticks a text may leave the program out (`owners list`, `fsck --storage`, `--dry-run`).
In prose the word behind a program may be no command (*tsferry-receiver does not run*); where a text
is code it has to be one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import click

from tests.support.architecture import Module

__all__ = ["FOREIGN", "Programs", "Said", "of_markdown", "of_plain_text", "of_python"]

FOREIGN = frozenset({
    "--allow-downgrades",  # apt-get
    "--add-modules",  # java
    "--auto-compaction-retention", "--max-txn-ops",  # etcd
    "--conf", "--py-files",  # spark-submit
    "--now",  # systemctl
    "--backup-dir", "--delay-updates", "--fsync", "--max-delete", "--partial",  # rsync, rclone
    "--info", "--log-json", "--progress", "--stats", "--use-json-log",  # rsync, rclone, borg
    "--metrics-addr",  # rclone
})  # fmt: skip
"""Options of programs of others, which our texts name."""
_TERM = "storage group"
"""Begins like a command."""
_PROGRAM = re.compile(r"(?<![\w./-])(tsferry-(?:sender|receiver|verify))(?![\w.-]|/)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
_SPAN = re.compile(r"(?<!`)(`+)([^`]+)\1(?!`)")
_FENCED = re.compile(r"(?ms)^ *```[a-z]*\n(.*?)^ *```")
_WORD = re.compile(r"[a-z][a-z-]*")
_END = re.compile(r"[`'\");,:|]$|[.;,:]$")
_HOLE = "X"


@dataclass(frozen=True)
class Said:
    """A piece of text that speaks of commands.

    Attributes:
        text: one command line, or prose around some.
        is_code: whether it stands as code, and a word behind a program is a command.
    """

    text: str
    is_code: bool


def of_markdown(text: str) -> Iterator[Said]:
    """Spans and blocks of code of a page, and its prose."""
    for block in _FENCED.findall(text):
        for line in block.replace("\\\n", " ").split("\n"):
            if _PROGRAM.search(line):  # what a command prints is code, and no command
                yield Said(line, is_code=True)
    yield from _pieces(_FENCED.sub("", text))


def of_python(module: Module) -> Iterator[Said]:
    """Texts of a module, what is filled in replaced by a hole."""
    inside = set[int]()
    for node in module.nodes:
        if isinstance(node, ast.JoinedStr):
            inside.update(map(id, node.values))
            text = "".join(
                str(each.value) if isinstance(each, ast.Constant) else _HOLE for each in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = "" if id(node) in inside else node.value
        else:
            continue
        if "`" in text or "-" in text:
            yield from _pieces(text)


def of_plain_text(text: str) -> Iterator[Said]:
    """A text with comments and back-ticks: configuration, units, templates."""
    yield from _pieces(re.sub(r"\n\s*#? ?", " ", text))


def _pieces(text: str) -> Iterator[Said]:
    flat = " ".join(text.replace("\b", " ").split())
    for _, span in _SPAN.findall(flat):
        yield Said(span, is_code=True)
    yield Said(_SPAN.sub(" ", flat), is_code=False)


@dataclass(frozen=True)
class Programs:
    """The programs that there are, by name."""

    roots: Mapping[str, click.Command]
    foreign: frozenset[str] = field(default=FOREIGN)

    def wrong(self, said: Said) -> list[str]:
        """What a text names that there is not."""
        found = []
        for mention in _PROGRAM.finditer(said.text):
            rest = said.text[mention.end() :]
            found += self._of(mention[1], rest.split(), said.is_code)
        if not _PROGRAM.search(said.text):
            found += self._short(said.text) if said.is_code else self._options(said.text)
        return found

    def _of(self, program: str, words: Sequence[str], is_code: bool) -> list[str]:
        """What is wrong in a line that begins with a program, up to where it ends."""
        context = click.Context(self.roots[program], info_name=program)
        wrong, waiting = list[str](), list(words)
        is_first = True
        while waiting:
            raw = waiting.pop(0)
            word = _END.sub("", raw).strip("`'\"()[]")
            if _PROGRAM.match(word) or (raw[0] in "'\"`(" and is_first and not is_code):
                break
            if word.startswith("--"):
                name = word.partition("=")[0]
                option = self._option(context, name)
                if option is None:
                    wrong.append(f"{context.command_path} {name}")
                    break
                if not option.is_flag and "=" not in word and waiting:
                    waiting.pop(0)
            elif isinstance(context.command, click.Group) and word:
                below = context.command.get_command(context, word)
                if below is not None:
                    context = click.Context(below, info_name=word, parent=context)
                elif is_code and _WORD.fullmatch(word) and not self._takes_words(context):
                    wrong.append(f"{context.command_path} {word}")
                    break
                else:
                    break
            if _END.search(raw):
                break
            is_first = False
        return wrong

    def _takes_words(self, context: click.Context) -> bool:
        return any(isinstance(each, click.Argument) for each in context.command.params)

    def _option(self, context: click.Context | None, name: str) -> click.Option | None:
        while context is not None:
            if name in ("--help", "--version"):
                return click.Option([name], is_flag=True)
            for each in context.command.params:
                if isinstance(each, click.Option) and name in (*each.opts, *each.secondary_opts):
                    return each
            context = context.parent
        return None

    def _short(self, text: str) -> list[str]:
        """What is wrong in code that leaves the program out; pages quote messages as code too."""
        words = text.split()
        if not words:
            return []
        if words[0].startswith("--"):
            return self._options(text)
        owners = [name for name, root in self.roots.items() if self._has(root, words[0])]
        is_message = len(words) > 3 and not re.search(r"--|[<\[]", text)
        if not owners or len(words) == 1 or is_message or text.startswith(_TERM):
            return []
        tried = [self._of(name, words, True) for name in owners]
        return [] if [] in tried else tried[0]

    def _has(self, root: click.Command, name: str) -> bool:
        return isinstance(root, click.Group) and (
            root.get_command(click.Context(root, info_name="x"), name) is not None
        )

    def _options(self, text: str) -> list[str]:
        return [each for each in _OPTION.findall(text) if each not in self._all | self.foreign]

    @cached_property
    def _all(self) -> frozenset[str]:
        """Every option of every command."""
        found = {"--help", "--version"}
        waiting = [click.Context(root, info_name=name) for name, root in self.roots.items()]
        while waiting:
            context = waiting.pop()
            for each in context.command.params:
                found.update(each.opts)
            if isinstance(context.command, click.Group):
                for name in context.command.list_commands(context):
                    below = context.command.get_command(context, name)
                    assert below is not None
                    waiting.append(click.Context(below, info_name=name, parent=context))
        return frozenset(found)
