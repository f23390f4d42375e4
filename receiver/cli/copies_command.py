"""`copies`: what storage nodes have of what is loaded, and the way back."""

from __future__ import annotations

import click

from common.cli import Invocation
from common.terminal import size_text
from receiver.cli.showing import json_option, write_json
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient
from receiver.operator.copy_views import BackView, CopiesView

__all__ = ["copies"]

_SHOWN = 20
"""Files, or replicas, that are named one by one."""


@click.group()
def copies() -> None:
    """Copies of tablets on storage nodes (nodes.replicas)."""


@copies.command(
    epilog="Example: tsferry-receiver copies status --json. Exit codes: 0 done; 4 the receiver "
    "does not run or refuses."
)
@json_option
@click.pass_obj
def status(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """How many tablets are placed, whole, and short of nodes."""
    client = OperatorClient(invocation.load().value)
    found = client.ask("GET", "/v1/copies/status", CopiesView)
    if as_json:
        write_json(found)
        return
    click.echo(f"copies wanted    {found.replicas}, before a task is told {found.before_ack}")
    click.echo(f"tablets          {found.tablets}, placed {found.placed}, whole {found.whole}")
    click.echo(f"being made       {found.creating}")
    click.echo(f"short of nodes   {found.short}")
    if found.busy is not None:
        click.echo(f"no task is taken: {found.busy}")
    for each in found.strange[:_SHOWN]:
        click.echo(f"not known here: tablet {each.tablet} at node {each.node}")
    if len(found.strange) > _SHOWN:
        click.echo(f"and {len(found.strange) - _SHOWN} more")


@copies.command(
    epilog="Example: tsferry-receiver copies back. Exit codes: 0 done; 3 files did not come; "
    "4 the receiver does not run or refuses."
)
@json_option
@click.pass_obj
def back(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """Bring back what no data directory has, from the storage nodes."""
    found = OperatorClient(invocation.load().value).ask("POST", "/v1/copies/back", BackView)
    if as_json:
        write_json(found)
    else:
        click.echo(f"came back: {found.files} files, {size_text(found.size)}")
        for each in found.failed[:_SHOWN]:
            click.echo(f"{each.physical}: {each.reason}")
        if len(found.failed) > _SHOWN:
            click.echo(f"and {len(found.failed) - _SHOWN} more")
    if found.failed:
        raise SystemExit(3)
