"""`sql`: statements about the schema, from the command line, a script or a shell."""

from __future__ import annotations

import itertools
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import click

from common.console.cli import Invocation
from common.console.json_option import JsonForm, json_option
from common.console.terminal import printable
from common.errors import TsferryError, UsageError
from receiver.cli.shell.sqlformat import OutputForm, SqlDone, SqlLine, caret, output
from receiver.cli.shell.sqlsource import SqlSource
from receiver.config import ReceiverConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.cli.shell.sqlsource import SqlRow
    from receiver.metadata.sql.lexing import Placed

__all__ = ["sql", "write_reply"]

_EPILOG = (
    "Example: tsferry-receiver sql 'show timeseries root.turbine.** where unit = c limit 10'; "
    "tsferry-receiver sql --json 'count devices' --at 2026-01-31T08:00:00Z; "
    "tsferry-receiver sql < script.sql. Without a server show and count still work. "
    "Exit codes: 0 done; 1 a statement was refused by a rule; 2 a statement is wrong, or what it "
    "names is not there; 3 a file of a load is not here; 4 the receiver does not run, or refuses."
)


@click.command(epilog=_EPILOG)
@click.argument("statement", required=False)
@click.option(
    "--at", help="Ask as of this time: 2026-01-31T08:00:00Z, or the timestamp of a commit."
)
@click.option(
    "--fetch-size",
    type=click.IntRange(1, 1_000_000),
    help="Rows fetched at a time.  [default: metadata.fetch_size of the receiver]",
)
@json_option(
    JsonForm(SqlLine, shape="lines"),
    JsonForm(SqlDone, "of a statement that gives no rows"),
    name="form",
    text="Write a JSON object a line.",
    flag_value="json",
)
@click.option("--csv", "form", flag_value="csv", help="Write CSV (RFC 4180).")
@click.option("--keep-going", is_flag=True, help="Go on with a script after an error.")
@click.pass_obj
def sql(
    invocation: Invocation[ReceiverConfig],
    statement: str | None,
    at: str | None,
    fetch_size: int | None,
    form: OutputForm | None,
    keep_going: bool,
) -> int:
    """Carry out STATEMENT; without one those on standard input, or a shell on a terminal.

    In a script each statement ends with a semicolon, and the first that fails ends the script.
    """
    source = SqlSource(invocation.load().value, quiet=form == "json")
    form = form or "table"
    if statement is None and sys.stdin.isatty():
        from receiver.cli.shell.sqlshell import Shell

        return Shell(source, form, at, fetch_size, invocation.environ).run()
    # Editors of some systems put a byte order mark before a script.
    script = sys.stdin.read().removeprefix("\ufeff") if statement is None else statement
    with closing(source):
        code = _run_script(source, script, at, fetch_size, form, keep_going)
        if source.txn is not None:
            said = "the script ended in a transaction, which is rolled back"
            click.echo(f"tsferry-receiver: {said}", err=True)
            code = code or 1
        return code


def _run_script(
    source: SqlSource,
    script: str,
    at: str | None,
    size: int | None,
    form: OutputForm,
    keep_going: bool,
) -> int:
    from receiver.metadata.sql.lexing import statements

    found = list(statements(script))
    if not found:
        raise UsageError("expected a statement, as in: tsferry-receiver sql 'show timeseries'")
    code = 0
    for each in found:
        try:
            ended = write_reply(source, each.text, at, size, form)
            code = code or ended
            if ended and not keep_going:
                break
        except TsferryError as error:
            for line in caret(each.text, error):
                click.echo(line, err=True)
            click.echo(f"tsferry-receiver: error: {printable(_placed(each, error))}", err=True)
            code = code or error.exit_code
            if not keep_going:
                break
    return code


def _placed(statement: Placed, error: TsferryError) -> str:
    """The message of an error, with the place in the script where that in the statement stood."""
    line, column = error.extra.get("line"), error.extra.get("column")
    if not isinstance(line, int) or not isinstance(column, int):
        return f"line {statement.line}: {error.message}" if statement.line > 1 else error.message
    why = error.message.removeprefix(f"line {line}, column {column}: ")
    if line == 1:
        column += statement.column - 1
    return f"line {statement.line + line - 1}, column {column}: {why}"


def write_reply(
    source: SqlSource, statement: str, at: str | None, size: int | None, form: OutputForm
) -> int:
    """Carry out a statement, and write to standard output what it gave; returns the exit code."""
    reply = source.run(statement, at, size)
    out = output(form, sys.stdout, reply.times)
    if not reply.columns:
        out.done(reply.message or "done", reply.commit)
        return reply.code
    out.begin(reply.columns)
    none: Sequence[SqlRow] = ()
    with closing(reply.pages):
        # An answer without a page has its columns all the same.
        for page in itertools.chain([next(reply.pages, none)], reply.pages):
            out.page(page)
    if reply.message and form == "table":
        click.echo(printable(reply.message))
    sys.stdout.flush()
    return reply.code
