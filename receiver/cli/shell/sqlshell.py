"""The shell: one statement after another, with history and completion.

Enter carries a statement out as soon as it is whole, with or without a semicolon; what is right as
far as it goes is continued on the next line. Tab completes keywords and, below a path, what the
tree has there.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import DummyHistory, FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import CompleteStyle

import common
from common.console.terminal import counted, printable
from common.durable import Tree
from common.errors import TsferryError
from receiver.cli.shell.sqlformat import OutputForm, caret, output
from receiver.cli.shell.sqlsource import SqlReply, SqlSource
from receiver.metadata.model.errors import SqlError
from receiver.metadata.model.paths import quote_node
from receiver.metadata.sql.lexing import WORDS, statements
from receiver.metadata.sql.parser import next_words, parse

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output as Screen

__all__ = ["SchemaCompleter", "Shell", "is_whole"]

_PAGE: Final = 100
"""Rows until the shell asks whether to go on."""
_OFFERED: Final = 200
_WORD: Final = re.compile(r"""(?:[^\s,;=()'"`]|`(?:[^`]|``)*`?|(?<=\.)"(?:[^"]|"")*"?)*\Z""")
_LAST_NODE: Final = re.compile(r"""(?:`(?:[^`]|``)*`?|"(?:[^"]|"")*"?|[^.`"]*)\Z""")
_LEAVE: Final = frozenset({"exit", "quit", r"\q"})
_HELP: Final = frozenset({"help", "?", r"\h", r"\?"})
_STATEMENTS: Final = """\
show timeseries [path] [where tag = value | where tag contains text] [order by heat]
show devices | storage group | child paths | child nodes | tag keys [path]
show files | partitions [path]              show tables | tablets [path]
show tasks | nodes | cache slots
show tag values [path] [with key = tag]     show ttl [on path]     show all ttl
    each with [limit n] [offset n] [at time]
count timeseries [path] [where ...] [group by level = n] [at time]
count devices | storage group [path] [at time]     count nodes path level = n [at time]
set storage group to path, ...              delete storage group path, ... [with data]
create timeseries path[(alias)] with datatype = T, encoding = E, compression = C
    [tags(k = v, ...)] [attributes(k = v, ...)]
create aligned timeseries device(name T [encoding = E] [compression = C], ...)
delete timeseries path, ...
alter timeseries path rename k to k | set k = v, ... | drop k, ...
    | add tags k = v, ... | add attributes k = v, ...
    | upsert [alias = name] [tags(k = v, ...)] [attributes(k = v, ...)]
create table path [with (replicas = n, partitions from time to time [every 28d] | at (n, ...))]
alter table path set replicas = n | default, or add partitions ...
set ttl to path milliseconds | 30d          unset ttl to path
set upload to path at once | after 12h | never      unset upload to path
load 'path', ... [as 'sender'] [into 'group'] [on duplicate error | keep | replace | skip]
show upload [on path, ...]                  create snapshot for schema
begin     commit     rollback               show transactions
A time is 2026-01-31T08:00:00Z or the timestamp of a commit. Ctrl-D or exit leaves."""


class Shell:
    """Reads statements from a terminal, and writes answers to it.

    Args:
        source: that they are put to.
        form: of the answers.
        at: as of when, where a statement does not say.
        size: rows fetched at a time.
        environ: tells where the history is kept.
        keys: where keys come from, and
        screen: what is drawn on; both the terminal, unless a test has others.
    """

    def __init__(
        self,
        source: SqlSource,
        form: OutputForm,
        at: str | None,
        size: int | None,
        environ: Mapping[str, str],
        *,
        keys: Input | None = None,
        screen: Screen | None = None,
    ) -> None:
        self._source = source
        self._form = form
        self._at = at
        self._size = size
        self._session: PromptSession[str] = PromptSession(
            history=_history(environ),
            completer=ThreadedCompleter(SchemaCompleter(source)),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            enable_history_search=True,
            multiline=True,
            prompt_continuation="      -> ",
            key_bindings=_bindings(),
            input=keys,
            output=screen,
        )
        self._ask: PromptSession[str] = PromptSession(
            history=DummyHistory(), input=keys, output=screen
        )

    def run(self) -> int:
        """Until the user leaves, which rolls back what is not committed; returns the exit code."""
        with closing(self._source):
            return self._run()

    def _run(self) -> int:
        click.echo(f"tsferry {common.__version__}; `help` lists the statements, `exit` leaves")
        while True:
            try:
                text = self._session.prompt(self._prompt()).strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return 0
            word = text.rstrip(";").strip().lower()
            if word in _LEAVE:
                return 0
            if word in _HELP:
                click.echo(_STATEMENTS)
                continue
            for each in statements(text):
                if not self._carry_out(each.text):
                    break

    def _prompt(self) -> str:
        """With a star while a transaction is open."""
        return "tsferry> " if self._source.txn is None else "tsferry*> "

    def _carry_out(self, statement: str) -> bool:
        """Whether it was done, all of it: a load may have loaded nothing."""
        try:
            begun = time.monotonic()
            reply = self._source.run(statement, self._at, self._size or _PAGE)
            if reply.offline:
                click.echo("(no receiver is running: read from its directories)", err=True)
            self._write(reply, begun)
        except TsferryError as error:
            for line in caret(statement, error):
                click.echo(line)
            for line in error.message.splitlines():
                click.echo(f"error: {printable(line)}")
            return False
        except KeyboardInterrupt:
            click.echo("interrupted")
            return False
        return reply.code == 0

    def _write(self, reply: SqlReply, begun: float) -> None:
        out = output(self._form, sys.stdout, reply.times)
        if not reply.columns:
            out.done(reply.message or "done", reply.commit)
            return
        out.begin(reply.columns)
        count, spent = 0, 0.0
        with closing(reply.pages):
            for page in reply.pages:
                spent += time.monotonic() - begun
                if count and page and not self._go_on(count):
                    break
                begun = time.monotonic()
                out.page(page)
                count += len(page)
        if self._form == "table":
            totals = f", {printable(reply.message)}" if reply.message else ""
            click.echo(f"{count} row{'' if count == 1 else 's'}{totals}, {spent:.3f} s")

    def _go_on(self, count: int) -> bool:
        try:
            answer = self._ask.prompt(f"-- {counted(count, 'row')}; Enter for more, q to stop: ")
        except (KeyboardInterrupt, EOFError):
            return False
        return not answer.strip().lower().startswith("q")


# -- reading ---------------------------------------------------------------------------------------


def is_whole(text: str) -> bool:
    """Whether Enter carries the text out: it ends with `;`, or more could not mend it."""
    stripped = text.strip()
    if not stripped or stripped.endswith(";") or stripped.lower() in _LEAVE | _HELP:
        return True
    try:
        parse(stripped)
    except SqlError as error:
        return not error.extra.get("unfinished")
    except TsferryError:
        return True
    return True


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @Condition
    def whole() -> bool:
        from prompt_toolkit.application import get_app

        buffer = get_app().current_buffer
        # An empty line carries out what there is, so that its error can be seen.
        return is_whole(buffer.text) or buffer.document.current_line.strip() == ""

    @bindings.add("enter", filter=whole)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return bindings


def _history(environ: Mapping[str, str]) -> History:
    """Kept in the user's state directory; in memory where there is none to be had."""
    home = environ.get("HOME")
    state = environ.get("XDG_STATE_HOME") or (f"{home}/.local/state" if home else None)
    if state is None:
        return InMemoryHistory()
    directory = Path(state) / "tsferry"
    try:
        with Tree(directory, create=True) as tree:
            if not tree.exists("sql_history"):
                tree.write_atomic("sql_history", b"", mode=0o600)
    except (OSError, TsferryError):
        return InMemoryHistory()
    return FileHistory(str(directory / "sql_history"))


# -- completion ------------------------------------------------------------------------------------


class SchemaCompleter(Completer):
    """Completes keywords, and paths by what the tree has below them."""

    def __init__(self, source: SqlSource) -> None:
        self._source = source

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """What the word before the cursor may become."""
        text = document.text_before_cursor
        found = _WORD.search(text)
        word = "" if found is None else found[0]
        expected = next_words(text[: len(text) - len(word)])
        for keyword in sorted(expected - set(WORDS)):
            if keyword.isalpha() and keyword.startswith(word.upper()):
                shown = keyword.lower() if word == word.lower() else keyword
                yield Completion(f"{shown} ", start_position=-len(word))
        if "PATH" in expected:
            yield from self._paths(word)

    def _paths(self, word: str) -> Iterable[Completion]:
        if "." not in word:
            if "root".startswith(word):
                yield Completion("root", start_position=-len(word))
            return
        last = _LAST_NODE.search(word)
        begun = "" if last is None else last[0]
        parent = word[: len(word) - len(begun) - 1]
        for name in self._children(parent):
            shown = quote_node(name)
            if shown.startswith(begun) or name.startswith(begun):
                yield Completion(shown, start_position=-len(begun))

    def _children(self, parent: str) -> list[str]:
        try:
            reply = self._source.run(f"show child nodes {parent} limit {_OFFERED}")
            return [row[0] for page in reply.pages for row in page]
        except TsferryError:  # completion says nothing where nothing can be found
            return []
