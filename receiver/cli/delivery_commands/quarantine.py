"""`quarantine`: files that were refused or found bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import printable, size_text
from common.errors import Integrity, NotFoundError, UsageError
from receiver.cli.command_answers import FilesDropped, FilesRetried, RetriedFile, SenderFile
from receiver.cli.delivery_commands.sender_names import sender_option
from receiver.cli.showing import commit_time, show
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient, ask
from receiver.operator.stored.quarantine import list_quarantine as list_of_entries
from receiver.operator.views.file_views import QuarantineView
from receiver.operator.views.wire import QuarantineAnswer, QuarantineKey, RetryAnswer

__all__ = ["quarantine"]

_HEADERS = ("PATH", "SENDER", "SIZE", "HOLD", "SINCE", "DIGEST", "REASON")


@click.group()
def quarantine() -> None:
    """Files that were refused, or found bad after they were loaded."""


@quarantine.command(
    "list",
    epilog="Example: tsferry-receiver quarantine list. Works without a server too. "
    "Exit codes: 0 done; 2 configuration; 4 the receiver refuses.",
)
@sender_option()
@json_option(QuarantineAnswer)
@click.pass_obj
def list_quarantine(
    invocation: Invocation[ReceiverConfig], sender: str | None, as_json: bool
) -> None:
    """What is in quarantine, and why."""
    answer = ask(
        invocation.load().value,
        lambda server: _entries(server, sender),
        lambda there: QuarantineAnswer(entries=list_of_entries(there.engine, sender)),
    )
    rows = [
        (
            each.path,
            each.sender[:8],
            size_text(each.size),
            "yes" if each.hold else "no",
            commit_time(each.since, each.since_at),
            each.digest,
            each.reason,
        )
        for each in answer.entries
    ]
    show(answer, as_json, _HEADERS, rows, "nothing is in quarantine")


def _chosen(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments that name entries."""
    for decorate in (
        click.option("--digest", help="Only with this digest."),
        sender_option(),
        click.option("--all", "everything", is_flag=True, help="All entries."),
        click.argument("path", required=False),
    ):
        command = decorate(command)
    return command


@quarantine.command(
    epilog="Example: tsferry-receiver quarantine retry sequence/root.sg/0/0/1-1-0.tsfile. "
    "Exit codes: 0 done; 2 no such entry; 3 a file is still bad; "
    "4 the receiver does not run or refuses."
)
@_chosen
@json_option(FilesRetried)
@click.pass_obj
def retry(
    invocation: Invocation[ReceiverConfig],
    path: str | None,
    everything: bool,
    sender: str | None,
    digest: str | None,
    as_json: bool,
) -> int:
    """Look at files again that are still here; let the next round send the others."""
    server = OperatorClient(invocation.load().value)
    results = []
    code = 0
    for entry in _matching(server, path, everything, sender, digest):
        try:
            body = _key(entry)
            result = server.ask("POST", "/v1/quarantine/retry", RetryAnswer, body=body).result
        except Integrity as error:
            result, code = f"still refused: {error.message}", error.exit_code
        results.append(RetriedFile(path=entry.path, sender=entry.sender, result=result))
        if not as_json:
            click.echo(f"{printable(entry.path)}: {printable(result)}")
    if as_json:
        emit_json(FilesRetried(results=results))
    return code


@quarantine.command(
    epilog="Example: tsferry-receiver quarantine drop --all --sender "
    "0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f. Exit codes: 0 done; 2 no such entry; "
    "4 the receiver does not run or refuses."
)
@_chosen
@json_option(FilesDropped)
@click.pass_obj
def drop(
    invocation: Invocation[ReceiverConfig],
    path: str | None,
    everything: bool,
    sender: str | None,
    digest: str | None,
    as_json: bool,
) -> None:
    """Forget files and the bytes that are kept of them."""
    server = OperatorClient(invocation.load().value)
    dropped = []
    for entry in _matching(server, path, everything, sender, digest):
        server.tell("POST", "/v1/quarantine/drop", _key(entry))
        dropped.append(SenderFile(path=entry.path, sender=entry.sender))
        if not as_json:
            click.echo(f"{printable(entry.path)}: dropped")
    if as_json:
        emit_json(FilesDropped(dropped=dropped))


def _entries(server: OperatorClient, sender: str | None) -> QuarantineAnswer:
    return server.ask("GET", "/v1/quarantine", QuarantineAnswer, query={"sender": sender})


def _matching(
    server: OperatorClient,
    path: str | None,
    everything: bool,
    sender: str | None,
    digest: str | None,
) -> list[QuarantineView]:
    if everything == (path is not None):
        raise UsageError("expected a PATH, or --all")
    found = [
        each
        for each in _entries(server, sender).entries
        if (path is None or each.path == path) and (digest is None or each.digest == digest)
    ]
    if not found and not everything:
        raise NotFoundError(f"{path!a} is not in quarantine")
    return found


def _key(entry: QuarantineView) -> QuarantineKey:
    return QuarantineKey(sender=entry.sender, path=entry.path, digest=entry.digest)
