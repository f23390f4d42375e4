"""`files`: the catalogue."""

from __future__ import annotations

from functools import partial

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import printable, size_text
from common.errors import UsageError
from receiver.cli.delivery_commands.sender_names import sender_option
from receiver.cli.showing import commit_time, show
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient, ask_all
from receiver.operator.stored.files import FILE_STATES, list_files
from receiver.operator.views.file_views import FilesPage, FileView
from receiver.operator.views.wire import (
    DeleteAnswer,
    DeleteRequest,
    UndeleteAnswer,
    UndeleteRequest,
)

__all__ = ["files"]

_HEADERS = (
    "PATH",
    "SENDER",
    "STATE",
    "SIZE",
    "DEVICES",
    "POINTS",
    "LOADED",
    "VERIFIED",
    "PHYSICAL",
)


@click.group(
    invoke_without_command=True,
    epilog="Example: tsferry-receiver files --state quarantined --json. Works without a server "
    "too. Exit codes: 0 done; 2 configuration; 4 the receiver refuses.",
)
@sender_option()
@click.option(
    "--state",
    type=click.Choice(FILE_STATES),
    help="Only in this state; the expired are among the deleted.",
)
@click.option("--unverified", is_flag=True, help="Only those that no verification has proved.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@json_option(FilesPage)
@click.pass_context
def files(
    context: click.Context,
    sender: str | None,
    state: str | None,
    unverified: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Files that were loaded, in order of their physical paths."""
    if context.invoked_subcommand is not None:
        return
    invocation: Invocation[ReceiverConfig] = context.obj
    found = ask_all(
        invocation.load().value,
        "/v1/files",
        FilesPage,
        lambda page: page.files,
        {"sender": sender, "state": state, "unverified": "true" if unverified else None},
        partial(list_files, sender=sender, state=state, unverified=unverified),
        limit,
    )
    rows = [
        (
            each.path,
            each.sender[:8],
            _stands(each),
            size_text(each.size),
            each.devices,
            each.points,
            commit_time(each.created, each.created_at),
            "adopted" if each.adopted else commit_time(each.verified, each.verified_at),
            each.physical,
        )
        for each in found
    ]
    show(FilesPage(files=found), as_json, _HEADERS, rows, "no files")


def _stands(file: FileView) -> str:
    """Its state, and what is read in its place."""
    text = file.state if file.reason is None else f"{file.state} ({file.reason})"
    names = ", ".join(each.rpartition("/")[2] for each in file.inside)
    return f"{text}, read inside {names}" if names else text


@files.command(
    epilog="Example: tsferry-receiver files delete --everywhere sequence/root.sg/0/0/1-1-0-0."
    "0f4e1c0e9a8b4d7c.tsfile. Exit codes: 0 done; 3 a file is not there, or its sender has it; "
    "4 the receiver does not run or refuses."
)
@click.argument("physical", nargs=-1, required=True)
@click.option("--everywhere", is_flag=True, help="At each centre that this one forwards to, too.")
@json_option(DeleteAnswer)
@click.pass_obj
def delete(
    invocation: Invocation[ReceiverConfig],
    physical: tuple[str, ...],
    everywhere: bool,
    as_json: bool,
) -> int:
    """Give up files that their senders have no more; the history keeps them a while.

    The centres above hold it like any delete, where it is too much at once (`deletes`).
    """
    body = DeleteRequest(physicals=list(physical), everywhere=everywhere)
    server = OperatorClient(invocation.load().value)
    answer = server.ask("POST", "/v1/files/delete", DeleteAnswer, body=body)
    if as_json:
        emit_json(answer)
        return 3 if answer.failed else 0
    for each in answer.deleted:
        click.echo(f"{printable(each)}: deleted{' everywhere' if everywhere else ''}")
    for failed in answer.failed:
        click.echo(f"{printable(failed.physical)}: {printable(failed.reason)}", err=True)
    return 3 if answer.failed else 0


@files.command(
    epilog="Example: tsferry-receiver files undelete --reason gone --sender "
    "0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f. Exit codes: 0 done; 2 nothing to do; 3 the bytes of a file "
    "are gone or bad; 4 the receiver does not run or refuses."
)
@click.argument("physical", nargs=-1)
@sender_option()
@click.option("--reason", help="All that were deleted for this reason, as `files` shows it.")
@json_option(UndeleteAnswer)
@click.pass_obj
def undelete(
    invocation: Invocation[ReceiverConfig],
    physical: tuple[str, ...],
    sender: str | None,
    reason: str | None,
    as_json: bool,
) -> int:
    """Make deleted files visible again whose bytes still stand, as retired ones."""
    server = OperatorClient(invocation.load().value)
    chosen = list(physical)
    if reason is not None:
        query = {"sender": sender, "state": "deleted"}
        deleted = server.ask_all("/v1/files", FilesPage, lambda page: page.files, query)
        chosen += [each.physical for each in deleted if each.reason == reason]
    if not chosen:
        raise UsageError("name deleted files by their physical paths, or give --reason")
    body = UndeleteRequest(physicals=chosen)
    answer = server.ask("POST", "/v1/files/undelete", UndeleteAnswer, body=body)
    if as_json:
        emit_json(answer)
        return 3 if answer.failed else 0
    for each in answer.back:
        click.echo(f"{printable(each)}: visible again")
    for failed in answer.failed:
        click.echo(f"{printable(failed.physical)}: {printable(failed.reason)}", err=True)
    return 3 if answer.failed else 0
