"""`adopt`: what an old receiver, or a copied tree, has on this machine."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.progress_bar import WorkProgress
from common.console.terminal import counted, printable, size_text
from common.errors import EXIT_NOT_LOADED, UsageError
from receiver.cli.awaited_answer import awaited
from receiver.cli.showing import show
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient
from receiver.operator.views.load_wire import AdoptionAnswer, AdoptionRequest

__all__ = ["adopt"]

_HEADERS = ("RESULT", "SIZE", "SENDER", "PATH", "SOURCE", "REASON")
_TAKEN = ("loaded", "already", "expired")


@click.command(
    epilog="Example: tsferry-receiver adopt /opt/iotdb/data --commit. The server that runs does "
    "it, and has to be able to read the files. Exit codes: 0 done, or it would be; 2 wrong usage, "
    "or there is no such directory; 3 a file is refused, and nothing was taken; 4 the receiver "
    "does not run or refuses, or a sender is at work."
)
@click.argument("directories", nargs=-1, required=True, metavar="DIR...")
@click.option(
    "--as",
    "names",
    multiple=True,
    metavar="[GROUP=]NAME",
    help="Sender, by uuid or label, of what nothing else tells; or of one storage group. May be "
    "repeated.",
)
@click.option("--sg", help="Storage group of files that do not lie as a database lays them.")
@click.option(
    "--with-deleted",
    is_flag=True,
    help="Take files that the old server has deleted points of, with all their points.",
)
@click.option(
    "--move",
    is_flag=True,
    help="Take the files themselves, without a copy: the old receiver has them no more. They have "
    "to be on the file system of the data directory.",
)
@click.option("--commit", is_flag=True, help="Do it; otherwise only say what would be done.")
@json_option(AdoptionAnswer)
@click.pass_context
def adopt(
    context: click.Context,
    directories: tuple[str, ...],
    names: tuple[str, ...],
    sg: str | None,
    with_deleted: bool,
    move: bool,
    commit: bool,
    as_json: bool,
) -> None:
    """Take over the files of an old receiver's directories, or of a copied tree.

    Each becomes a file of the sender that it came from, which sends it no more. They are copied,
    and nothing of the old receiver is changed, unless --move says so. Where one file is refused,
    nothing is taken.
    """
    invocation: Invocation[ReceiverConfig] = context.obj
    server = OperatorClient(invocation.load().value, keep=True)
    owner, groups = _senders(names)
    request = AdoptionRequest(
        task=secrets.token_hex(16),
        paths=[str(Path(each).absolute()) for each in directories],
        owner=owner,
        groups=groups,
        storage_group=sg,
        with_deleted=with_deleted,
        move=move,
        commit=commit,
    )
    progress = WorkProgress(quiet=as_json)
    progress.say("the receiver looks at the files")
    answer = awaited(server, "/v1/adoptions", request.task, request, AdoptionAnswer, progress)
    _show(answer, as_json)
    untaken = any(each.result not in _TAKEN for each in answer.files)  # a device went meanwhile
    if untaken or (commit and not answer.committed):
        context.exit(EXIT_NOT_LOADED)


def _senders(names: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """The sender of all, and those of storage groups."""
    owner = ""
    groups: dict[str, str] = {}
    for each in names:
        group, equals, name = each.rpartition("=")
        if not equals and owner:
            raise UsageError("--as without a storage group is given twice")
        if equals:
            groups[group] = name
        else:
            owner = name
    return owner, groups


def _show(answer: AdoptionAnswer, as_json: bool) -> None:
    if as_json:
        emit_json(answer)
        return
    rows = [
        (
            each.result,
            size_text(each.size),
            each.sender[:8],
            each.path,
            each.source,
            each.reason or ("with what was deleted of it" if each.deletions else ""),
        )
        for each in answer.files
    ]
    show(answer, as_json, _HEADERS, rows, "no files")
    for odd in answer.odd:
        click.echo(printable(f"{odd.source}: {odd.reason}"), err=True)
    counts: dict[str, int] = {}
    for each in answer.files:
        counts[each.result] = counts.get(each.result, 0) + 1
    text = ", ".join(f"{number} {result}" for result, number in sorted(counts.items()))
    text = text or "nothing to take"
    if answer.devices:
        text += f", {counted(len(answer.devices), 'device')} without files"
    if deleted := sum(each.deletions for each in answer.files):
        text += f", {deleted} with what was deleted of them"
    if answer.odd:
        text += f", {len(answer.odd)} to be known"
    if answer.committed:
        click.echo(printable(text))
    elif any(each.result not in _TAKEN for each in answer.files):
        click.echo(printable(f"nothing was taken: {text}"))
    else:
        click.echo(printable(f"dry run: {text}; --commit does it"))
