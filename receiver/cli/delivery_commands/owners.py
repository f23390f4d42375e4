"""`owners`: which device takes data from whom."""

from __future__ import annotations

from functools import partial

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import printable
from receiver.cli.delivery_commands.sender_names import sender_argument, sender_option
from receiver.cli.showing import commit_time, show
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient, ask_all
from receiver.operator.edges.owners import list_owners as list_of_owners
from receiver.operator.views.token_views import OwnersPage
from receiver.operator.views.wire import OwnersMoved, ReleaseRequest, TransferRequest

__all__ = ["owners"]

_HEADERS = ("DEVICE", "SENDER", "LABEL", "SINCE")


@click.group()
def owners() -> None:
    """Devices and the senders that they take data from."""


@owners.command(
    "list",
    epilog="Example: tsferry-receiver owners list --sender 0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f. "
    "Works without a server too. Exit codes: 0 done; 2 configuration; 4 the receiver refuses.",
)
@sender_option()
@json_option(OwnersPage)
@click.pass_obj
def list_owners(invocation: Invocation[ReceiverConfig], sender: str | None, as_json: bool) -> None:
    """Devices that have an owner."""
    found = ask_all(
        invocation.load().value,
        "/v1/owners",
        OwnersPage,
        lambda page: page.owners,
        {"sender": sender},
        partial(list_of_owners, sender=sender),
    )
    rows = [
        (each.device, each.sender, each.label or None, commit_time(each.since, each.since_at))
        for each in found
    ]
    show(OwnersPage(owners=found), as_json, _HEADERS, rows, "no device has an owner")


@owners.command(
    epilog="Example: tsferry-receiver owners release root.turbine.d1. "
    "Exit codes: 0 done; 2 the device has no owner; 4 the receiver does not run or refuses."
)
@click.argument("device")
@json_option(OwnersMoved)
@click.pass_obj
def release(invocation: Invocation[ReceiverConfig], device: str, as_json: bool) -> None:
    """Free DEVICE, or all that match a pattern, for whoever comes first; what was loaded stays."""
    answer = OperatorClient(invocation.load().value).ask(
        "POST", "/v1/owners/release", OwnersMoved, body=ReleaseRequest(device=device)
    )
    _done(answer, as_json, f"{_number(answer.devices, 'device')} free")


@owners.command(
    epilog="Example: tsferry-receiver owners transfer root.turbine.d1 "
    "0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f. Exit codes: 0 done; 2 no such sender; "
    "4 the receiver does not run or refuses."
)
@click.argument("device")
@sender_argument("sender")
@json_option(OwnersMoved)
@click.pass_obj
def transfer(
    invocation: Invocation[ReceiverConfig], device: str, sender: str, as_json: bool
) -> None:
    """Let DEVICE, or all that match a pattern, take data from SENDER from now on.

    What was loaded stays visible. Files of the sender that had them end by it, and stand below what
    SENDER brings.
    """
    answer = OperatorClient(invocation.load().value).ask(
        "POST",
        "/v1/owners/transfer",
        OwnersMoved,
        body=TransferRequest(device=device, sender=sender),
    )
    moved = f"{_number(answer.devices, 'device')} transferred to {printable(sender)}"
    _done(answer, as_json, f"{moved}, {_number(answer.retired, 'file')} ended")


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _done(answer: OwnersMoved, as_json: bool, text: str) -> None:
    if as_json:
        emit_json(answer)
    else:
        click.echo(text)
