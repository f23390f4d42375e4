"""`senders`: who has been here, and what to do about clones."""

from __future__ import annotations

import time

import click

from common.config.units import format_duration
from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import counted, printable, size_text
from common.errors import EXIT_LATE, NotFoundError, UsageError
from common.wire import SchemaPosition
from receiver.cli.command_answers import SenderSet
from receiver.cli.delivery_commands.sender_names import asked_senders, sender_argument
from receiver.cli.showing import commit_time, moment, show
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient, segment
from receiver.operator.edges.edge_troubles import heard_troubles
from receiver.operator.edges.lateness import silence_of
from receiver.operator.views.sender_views import SenderView
from receiver.operator.views.wire import (
    AdoptRequest,
    OwnersMoved,
    SenderRemoved,
    SendersAccepted,
    SendersAnswer,
    SenderSettings,
)

__all__ = ["senders"]

_HEADERS = (
    "SENDER",
    "LABEL",
    "FILES",
    "VERIFIED",
    "SIZE",
    "QUARANTINED",
    "LAST TASK",
    "HEARD",
    "VERSION",
    "SCHEMA",
    "STATE",
)
_NAMED = 3


@click.group(invoke_without_command=True)
@json_option(SendersAnswer)
@click.pass_context
def senders(context: click.Context, as_json: bool) -> int:
    """Senders that have been here: lists them, unless a command says otherwise.

    Each is named by its uuid, the beginning of that, or its label.
    """
    if context.invoked_subcommand is not None:
        return 0
    code: int = context.invoke(list_senders, as_json=as_json)
    return code


@senders.command(
    "list",
    epilog="Example: tsferry-receiver senders list. Works without a server too. "
    "Exit codes: 0 done; 2 configuration; 4 the receiver refuses; 7 a sender is late.",
)
@json_option(SendersAnswer)
@click.pass_obj
def list_senders(invocation: Invocation[ReceiverConfig], as_json: bool) -> int:
    """All senders, their files and their last task, when they were heard and whether they are late.

    A sender is heard when it begins a round, and by its heartbeats; *late* is one that is silent
    for longer than `senders.late_after`, or than was set for it (`senders set`).
    """
    answer = asked_senders(invocation.load().value)
    rows = [
        (
            each.uuid,
            each.label or None,
            each.files,
            each.verified,
            size_text(each.bytes),
            each.quarantined,
            commit_time(each.last_commit, each.last_commit_at),
            moment(each.heard_at),
            each.version or None,
            _schema(each.schema),
            _state(each),
        )
        for each in answer.senders
    ]
    show(answer, as_json, _HEADERS, rows, "no sender has been here")
    for each in answer.shared_labels:
        uuids = ", ".join(each.senders[:_NAMED])
        more = f" and {len(each.senders) - _NAMED} more" if len(each.senders) > _NAMED else ""
        text = (
            f"warning: {counted(len(each.senders), 'sender has', 'senders have')} the "
            f"label {each.label}: {uuids}{more}; "
        )
        click.echo(printable(f"{text}give each its own (label in sender.toml)"), err=True)
    return EXIT_LATE if any(each.late for each in answer.senders) else 0


def _state(view: SenderView) -> str:
    if view.removed:
        return "removed"
    if view.late and view.heard_at is not None:
        return f"late: silent for more than {format_duration(view.late_after)}"
    if said := list(heard_troubles(view.heartbeat, view.clone_refused_at, time.time())):
        return "; ".join(([view.trouble] if view.trouble else []) + said)
    if view.listed == 0 and view.files and not (view.loading or view.open_task or view.trouble):
        return "lists nothing: retired list --sender names what is kept"
    return view.trouble or ("loading" if view.loading else "sending" if view.open_task else "-")


def _schema(there: SchemaPosition | None) -> str:
    if there is None:
        return "-"
    left = f", {there.unapplied} not" if there.unapplied else ""
    return f"{there.applied} applied{left}"


@senders.command(
    epilog="Example: tsferry-receiver senders schema 0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f. Works "
    "without a server too. Exit codes: 0 done; 2 no such sender; 4 the receiver refuses."
)
@sender_argument("sender")
@json_option(SchemaPosition)
@click.pass_obj
def schema(invocation: Invocation[ReceiverConfig], sender: str, as_json: bool) -> None:
    """How far the schema of SENDER is applied, and what of it is not, with the reasons."""
    answer = asked_senders(invocation.load().value)
    found = next((each for each in answer.senders if each.uuid == sender), None)
    if found is None:
        raise NotFoundError(f"no sender {sender} has been here")
    there = found.schema or SchemaPosition(identity="", offset=0)
    rows = [(each.record, each.reason) for each in there.failed]
    none = f"schema: {_schema(found.schema)}"
    show(there, as_json, ("NOT APPLIED", "REASON"), rows, none)
    if there.unapplied > len(rows) and not as_json:
        click.echo(f"... and {there.unapplied - len(rows)} more")


@senders.command(
    epilog="Example: tsferry-receiver senders adopt 0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f "
    "a45b6e63eb434aad891264b5c08d448e. Exit codes: 0 done; 2 no such sender; "
    "4 the receiver does not run or refuses."
)
@sender_argument("old")
@sender_argument("new")
@json_option(OwnersMoved)
@click.pass_obj
def adopt(invocation: Invocation[ReceiverConfig], old: str, new: str, as_json: bool) -> None:
    """Let NEW go on in the place of OLD: a box that was replaced, with a uuid of its own.

    NEW gets all devices of OLD. What OLD brought stays visible, and stands below what NEW brings.
    Where NEW is a mirror (propagate_deletes = "all"), what it had too goes with what it deletes;
    what it never had stays, and `status` says how much that is.
    """
    answer = OperatorClient(invocation.load().value).ask(
        "POST", f"/v1/senders/{segment(old)}/adopt", OwnersMoved, body=AdoptRequest(by=new)
    )
    if as_json:
        emit_json(answer)
    else:
        click.echo(
            f"{new} has {counted(answer.devices, 'device')} of {old}; "
            f"{counted(answer.retired, 'file')} ended"
        )


@senders.command(
    epilog="Example: tsferry-receiver senders accept 0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f. "
    "Exit codes: 0 done; 2 no such sender; 4 the receiver does not run or refuses."
)
@sender_argument("sender", required=False)
@click.option("--all", "every", is_flag=True, help="Every sender that was not removed.")
@json_option(SendersAccepted)
@click.pass_obj
def accept(
    invocation: Invocation[ReceiverConfig], sender: str | None, every: bool, as_json: bool
) -> None:
    """Let the next machine that comes as SENDER go on, whatever epoch it has.

    For a sender that was refused as a clone and is none: one that was restored from a copy, or
    whose state was lost. With its first look that was whole its list begins anew: what it has
    stands above all that it does not have, which is retired. A real clone needs a uuid of its own
    instead (on that machine: tsferry-sender init --new-identity). With --all, where the receiver
    itself was restored and refuses everybody, lists stay as they are.
    """
    if every is (sender is not None):
        raise UsageError("name a sender, or say --all")
    server = OperatorClient(invocation.load().value)
    if sender is None:
        answer = server.ask("POST", "/v1/senders/accept", SendersAccepted)
    else:
        server.tell("POST", f"/v1/senders/{segment(sender)}/accept")
        answer = SendersAccepted(senders=[sender])
    if as_json:
        emit_json(answer)
        return
    for each in answer.senders:
        click.echo(f"the next machine that comes as {each} is accepted")


@senders.command(
    "set",
    epilog="Example: tsferry-receiver senders set 0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f "
    "--late-after 2d. Exit codes: 0 done; 2 no such sender, or no duration; 4 the receiver does "
    "not run or refuses.",
)
@sender_argument("sender")
@click.option(
    "--late-after",
    required=True,
    metavar="DURATION",
    help='Silence after which it is late: 2d, 90m, "never", or "default" for senders.late_after.',
)
@json_option(SenderSet)
@click.pass_obj
def set_sender(
    invocation: Invocation[ReceiverConfig], sender: str, late_after: str, as_json: bool
) -> None:
    """Say what is expected of SENDER: after what silence it is late."""
    wanted = SenderSettings(late_after=silence_of(late_after))
    OperatorClient(invocation.load().value).tell(
        "POST", f"/v1/senders/{segment(sender)}/set", body=wanted
    )
    if as_json:
        emit_json(SenderSet(sender=sender, late_after=wanted.late_after))
    else:
        click.echo(f"{sender} is late after: {late_after}")


@senders.command(
    epilog="Example: tsferry-receiver senders remove 0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f. "
    "Exit codes: 0 done; 2 no such sender; 3 a task of it is being loaded; "
    "4 the receiver does not run or refuses."
)
@sender_argument("sender")
@json_option(SenderRemoved)
@click.pass_obj
def remove(invocation: Invocation[ReceiverConfig], sender: str, as_json: bool) -> None:
    """Have SENDER come no more: its tokens are revoked, its devices belong to nobody.

    What it brought stays visible, as retired files, until it is proved to be elsewhere or given up
    (retired drop). `senders accept` lets it come again.
    """
    answer = OperatorClient(invocation.load().value).ask(
        "POST", f"/v1/senders/{segment(sender)}/remove", SenderRemoved
    )
    if as_json:
        emit_json(answer)
        return
    click.echo(
        f"{sender} is removed: {counted(answer.tokens, 'token')}, "
        f"{counted(answer.devices, 'device')}"
    )
    click.echo(
        f"{counted(answer.retired, 'file')} ended, {answer.quarantined} refused ones were dropped"
    )
    click.echo(f"what stays: {counted(answer.files, 'file')}, {size_text(answer.bytes)}")
