"""`copies`: what storage nodes have of what is loaded, and the way back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import counted, printable, size_text, table
from receiver.config import ReceiverConfig
from receiver.metadata.commit.tablet_making import table_nodes
from receiver.metadata.model.paths import format_path
from receiver.operator.client import OperatorClient
from receiver.operator.views.copy_views import (
    BackView,
    CopiesView,
    OfferedTable,
    OfferedView,
    RebalanceRequest,
    RebalanceView,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

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
@json_option(CopiesView)
@click.pass_obj
def status(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """How many tablets are placed, whole, and short of nodes."""
    client = OperatorClient(invocation.load().value)
    found = client.ask("GET", "/v1/copies/status", CopiesView)
    if as_json:
        emit_json(found)
        return
    click.echo(f"copies wanted    {found.replicas}, before a task is told {found.before_ack}")
    click.echo(f"tablets          {found.tablets}, placed {found.placed}, whole {found.whole}")
    click.echo(f"being made       {found.creating}")
    click.echo(f"short of nodes   {found.short}")
    if found.evict_copies or found.released:
        size = size_text(found.released_bytes)
        click.echo(
            f"off the disks    {counted(found.released, 'file')}, {size}, proved by nodes before"
        )
    if found.evict_copies or found.released or found.nowhere:
        # Those too that are here no more, and that nothing let go: a disk is lost, say.
        click.echo(f"nowhere known    {counted(found.nowhere, 'file')}")
        for name in found.first_nowhere:
            click.echo(f"  {printable(name)}")
    if found.busy is not None:
        click.echo(f"no task is taken: {found.busy}")
    if found.newer:
        nodes = " ".join(sorted({each.node[:8] for each in found.newer}))
        click.echo(f"more is known of tables than here, as `copies offered` tells, by: {nodes}")
    for each in found.strange[:_SHOWN]:
        click.echo(f"not known here: tablet {each.tablet} at node {each.node}")
    if len(found.strange) > _SHOWN:
        click.echo(f"and {len(found.strange) - _SHOWN} more")


@copies.command(
    epilog="Example: tsferry-receiver copies back. Exit codes: 0 done; 3 files did not come; "
    "4 the receiver does not run or refuses."
)
@json_option(BackView)
@click.pass_obj
def back(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """Bring back what no data directory has, from the storage nodes."""
    found = OperatorClient(invocation.load().value).ask("POST", "/v1/copies/back", BackView)
    if as_json:
        emit_json(found)
    else:
        click.echo(f"came back: {counted(found.files, 'file')}, {size_text(found.size)}")
        for each in found.failed[:_SHOWN]:
            click.echo(f"{each.physical}: {each.reason}")
        if len(found.failed) > _SHOWN:
            click.echo(f"and {len(found.failed) - _SHOWN} more")
    if found.failed:
        raise SystemExit(3)


@copies.command(
    epilog="Example: tsferry-receiver copies rebalance --confirm, then tsferry-receiver copies "
    "status until all tablets are whole. Exit codes: 0 done; 3 something was placed at the same "
    "moment: say it again; 4 the receiver does not run or refuses."
)
@click.option("--confirm", is_flag=True, help="Do it; else it is only told what would go.")
@json_option(RebalanceView)
@click.pass_obj
def rebalance(invocation: Invocation[ReceiverConfig], confirm: bool, as_json: bool) -> None:
    """Have tablets go from storage nodes with much to those with little.

    Such as one that has just come: by itself it gets new tablets alone. A tablet stays where it is,
    too, until it is whole where it goes. 500 tablets at most go at once: say it again behind them.
    """
    found = OperatorClient(invocation.load().value).ask(
        "POST", "/v1/copies/rebalance", RebalanceView, body=RebalanceRequest(confirm=confirm)
    )
    if as_json:
        emit_json(found)
        return
    rows = [
        (each.node[:8], printable(each.name), size_text(each.before), size_text(each.after))
        for each in found.nodes
    ]
    if rows:
        click.echo(table(("NODE", "NAME", "HAS", "IS TO HAVE"), rows))
    if found.tablets:
        does = "go" if found.done else "would go"
        size = size_text(found.size)
        click.echo(f"{counted(found.tablets, 'tablet')}, {size}, {does} to other nodes")
    else:
        click.echo("no tablet goes to another node: all is even, or nothing fits")
    if found.moving:
        click.echo(f"{counted(found.moving, 'tablet')} not whole yet where placed: left alone")
    if found.tablets and not found.done:
        click.echo("nothing was changed; --confirm has it so")


@copies.command(
    epilog="Example: tsferry-receiver copies offered --into /srv/offered, then tsferry-receiver "
    "load /srv/offered/<sender> --as <sender> --on-duplicate skip. Exit codes: 0 done; 3 files did "
    "not come, or a node is silent; 4 the receiver does not run or refuses."
)
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="Fetch them, checked, into this directory: what is to be kept is loaded from there.",
)
@json_option(OfferedView)
@click.pass_obj
def offered(invocation: Invocation[ReceiverConfig], into: Path | None, as_json: bool) -> None:
    """What storage nodes have and the catalogue has not.

    After a restore from an older copy these are files that were loaded since. A file that was
    deleted while a node was away is among them too: look before you load. Nothing is changed at the
    nodes; what the catalogue does not know stays there.
    """
    from receiver.cli.copy_commands.offered_copies import fetch_offered

    client = OperatorClient(invocation.load().value, keep=True)
    found = client.ask("GET", "/v1/copies/offered", OfferedView)
    failed = {} if into is None else fetch_offered(client, found.files, into)
    if as_json:
        emit_json(found)
    else:
        _show_offered(found, into, failed)
    if failed or found.silent:
        raise SystemExit(3)


def _show_offered(found: OfferedView, into: Path | None, failed: Mapping[str, str]) -> None:
    rows = [
        (each.sender[:8], size_text(each.size), str(each.commit), each.path)
        for each in found.files[:_SHOWN]
    ]
    if rows:
        click.echo(table(("SENDER", "SIZE", "COMMIT", "PATH"), rows))
    more = ", and there are more" if found.more else ""
    size = size_text(sum(each.size for each in found.files))
    click.echo(f"{counted(len(found.files), 'file')}, {size}, that the catalogue has not{more}")
    for each in found.tables:
        click.echo(printable(_known(each)))
    for uuid in found.silent:
        click.echo(f"the node {uuid} is silent, and may have more")
    for name, why in sorted(failed.items()):
        click.echo(printable(f"{name}: {why}"))
    if into is not None:
        for sender in sorted({each.sender for each in found.files}):
            told = f"load {into / sender} --as {sender} --on-duplicate skip"
            click.echo(f"to take them: tsferry-receiver {told}")


def _known(each: OfferedTable) -> str:
    """What a node knows of a table, and the statements that make it so here."""
    path = format_path(table_nodes(each.table) or ())
    ttl = f"unset ttl to {path}" if each.ttl is None else f"set ttl to {path} {each.ttl}"
    replicas = "default" if each.replicas is None else each.replicas
    told = f"{ttl}; alter table {path} set replicas = {replicas}"
    return f"{each.table} was altered by commit {each.version}, which is not known here: {told}"
