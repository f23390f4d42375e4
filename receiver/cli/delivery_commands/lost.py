"""`lost`: files that neither side has any more."""

from __future__ import annotations

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import counted, size_text
from common.errors import UsageError
from receiver.cli.delivery_commands.sender_names import sender_option
from receiver.cli.showing import commit_time, show
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient, ask
from receiver.operator.edges.lost import list_lost
from receiver.operator.views.wire import AcknowledgeRequest, LostFilesAnswer

__all__ = ["lost"]

_HEADERS = ("PATH", "SENDER", "SIZE", "FIRST", "LAST", "SINCE", "REASON")


@click.group()
def lost() -> None:
    """Files that neither side has any more: shown until an operator acknowledges them."""


@lost.command(
    "list",
    epilog="Example: tsferry-receiver lost list --json. Works without a server too. "
    "Exit codes: 0 done; 2 configuration; 4 the receiver refuses.",
)
@sender_option()
@json_option(LostFilesAnswer)
@click.pass_obj
def list_files(invocation: Invocation[ReceiverConfig], sender: str | None, as_json: bool) -> None:
    """What is lost, and why. FIRST and LAST are times of the data, as the file has them."""
    answer = ask(
        invocation.load().value,
        lambda server: server.ask("GET", "/v1/lost", LostFilesAnswer, query={"sender": sender}),
        lambda there: LostFilesAnswer(files=list_lost(there.engine, sender)),
    )
    show(answer, as_json, _HEADERS, _rows(answer), "nothing is lost")


@lost.command(
    epilog="Example: tsferry-receiver lost acknowledge --sender "
    "0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f sequence/root.sg/0/0/1-1-0.tsfile. "
    "Exit codes: 0 done; 2 no such file is lost; 4 the receiver does not run or refuses."
)
@sender_option(
    "The sender whose files they are: uuid, the beginning of one, or label.", required=True
)
@click.option("--all", "everything", is_flag=True, help="All that is lost of this sender.")
@click.argument("paths", nargs=-1)
@json_option(LostFilesAnswer)
@click.pass_obj
def acknowledge(
    invocation: Invocation[ReceiverConfig],
    sender: str,
    everything: bool,
    paths: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say that the loss of PATHS is known: they are counted no more, nor in `complete until`.

    Nothing is deleted by it: what is in quarantine stays there.
    """
    if everything == bool(paths):
        raise UsageError("name paths, or say --all")
    answer = OperatorClient(invocation.load().value).ask(
        "POST",
        "/v1/lost/acknowledge",
        LostFilesAnswer,
        body=AcknowledgeRequest(sender=sender, paths=list(paths)),
    )
    if as_json:
        emit_json(answer)
        return
    show(answer, as_json, _HEADERS, _rows(answer), "nothing was lost")
    click.echo(f"acknowledged: {counted(len(answer.files), 'file')}")


def _rows(answer: LostFilesAnswer) -> list[tuple[object, ...]]:
    return [
        (
            each.path,
            each.sender[:8],
            size_text(each.size),
            each.first,
            each.last,
            commit_time(each.since, each.since_at),
            each.reason,
        )
        for each in answer.files
    ]
