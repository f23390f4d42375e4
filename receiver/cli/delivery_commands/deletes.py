"""`deletes`: what senders deleted, and what waits for an operator."""

from __future__ import annotations

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import printable, size_text
from receiver.cli.showing import commit_time, show
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient, ask, segment
from receiver.operator.stored.deletes import list_held_deletes
from receiver.operator.views.wire import DeletesDecided, HeldDeletesAnswer

__all__ = ["deletes"]

_HEADERS = ("DIGEST", "SENDER", "GROUP", "WHAT", "FILES", "SIZE", "POINTS", "SINCE", "WHY")


@click.group()
def deletes() -> None:
    """Deletes of senders that are held, because they are many or their token forbids them."""


@deletes.command(
    "list",
    epilog="Example: tsferry-receiver deletes list --json. Works without a server too. "
    "Exit codes: 0 done; 2 configuration; 4 the receiver refuses.",
)
@json_option(HeldDeletesAnswer)
@click.pass_obj
def list_deletes(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """Lists that wait; --json names their files."""
    answer = ask(
        invocation.load().value,
        lambda server: server.ask("GET", "/v1/deletes", HeldDeletesAnswer),
        lambda there: HeldDeletesAnswer(lists=list_held_deletes(there.engine)),
    )
    rows = [
        (
            each.digest,
            each.sender[:8],
            each.group,
            "hides points" if each.records else "gone",
            len(each.files),
            size_text(each.bytes),
            each.points,
            commit_time(each.since, each.since_at),
            each.reason,
        )
        for each in answer.lists
    ]
    show(answer, as_json, _HEADERS, rows, "no deletes are held")


@deletes.command(
    epilog="Example: tsferry-receiver deletes allow 5d41402abc4b2a76b9719d911017c592. "
    "Exit codes: 0 done; 2 no such list waits; 4 the receiver does not run or refuses."
)
@click.argument("digest")
@json_option(DeletesDecided)
@click.pass_obj
def allow(invocation: Invocation[ReceiverConfig], digest: str, as_json: bool) -> None:
    """Let the list with this DIGEST through, and no other.

    Points are hidden at once; files are deleted when their sender tells them as gone once more.
    """
    _decide(invocation, digest, "allow", as_json, "may be deleted")


@deletes.command(
    epilog="Example: tsferry-receiver deletes drop 5d41402abc4b2a76b9719d911017c592. "
    "Exit codes: 0 done; 2 no such list waits; 4 the receiver does not run or refuses."
)
@click.argument("digest")
@json_option(DeletesDecided)
@click.pass_obj
def drop(invocation: Invocation[ReceiverConfig], digest: str, as_json: bool) -> None:
    """Keep what is on the list with this DIGEST: its files are retired, its points stay visible."""
    _decide(invocation, digest, "drop", as_json, "is kept")


def _decide(
    invocation: Invocation[ReceiverConfig], digest: str, verdict: str, as_json: bool, text: str
) -> None:
    answer = OperatorClient(invocation.load().value).ask(
        "POST", f"/v1/deletes/{segment(digest)}/{verdict}", DeletesDecided
    )
    if as_json:
        emit_json(answer)
    else:
        click.echo(f"what is on the list {printable(digest)} {text}")
