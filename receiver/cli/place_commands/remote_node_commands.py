"""`nodes show | found | accept | confirm-master`: storage nodes that are processes."""

from __future__ import annotations

from functools import partial
from typing import Final

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import counted, printable, size_text
from common.errors import UsageError
from receiver.cli.command_answers import FoundNode, MasterConfirmed, NodeAccepted
from receiver.cli.showing import show
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient, ask, ask_all
from receiver.operator.places.node_lists import choose_node, node_of
from receiver.operator.places.remote_nodes import show_remote_node, unknown_tablets
from receiver.operator.views.node_views import NodesPage
from receiver.operator.views.remote_node_views import RemoteNodeView, UnknownTablets

__all__ = ["REMOTE_COMMANDS", "chosen_node"]

_UNKNOWN_HEADERS = ("NOT OF THIS CATALOGUE", "FILES", "SIZE")
_REMOTE = "/v1/nodes/remote"
_CONFIRM = "/v1/node/confirm-master"
_said = "Exit codes: 0 done; 2 no such node; 4 the receiver does not run or refuses."


@click.command(
    "show",
    epilog="Example: tsferry-receiver nodes show 0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f. "
    "Exit codes: 0 done; 2 no such node; 4 the receiver refuses.",
)
@click.argument("node")
@json_option(RemoteNodeView)
@click.pass_obj
def show_node(invocation: Invocation[ReceiverConfig], node: str, as_json: bool) -> None:
    """One storage node, by its uuid or name: its directories, and what it holds that nobody knows.

    Tablets that the catalogue does not have are never deleted for that.
    """
    config = invocation.load().value
    view = ask(
        config,
        lambda server: server.ask("GET", f"{_REMOTE}/{chosen_node(server, node)}", RemoteNodeView),
        lambda there: show_remote_node(there, node_of(there, node).uuid),
    )
    if as_json:
        emit_json(view)
        return
    lines = {
        "node": view.uuid,
        "name": view.name,
        "url": view.url,
        "host": view.host,
        "state": f"{view.state}, start {view.instance}",
        "heard": _age(view),
        "version": view.version or "-",
        "holds": f"{counted(view.tablets, 'tablet')}, {counted(view.files, 'file')}, "
        f"{size_text(view.bytes)}",
        "not whole": f"{counted(view.copying, 'tablet')}" if view.copying else "none",
        "damaged": f"{counted(view.damaged, 'tablet')}" if view.damaged else "none",
        "keeps": f"{size_text(view.cache)} of the object store" if view.cache else "nothing",
        "notes": _notes(view) or "none",
    }
    for name, text in lines.items():
        click.echo(f"{name + ':':12}{printable(text)}")
    for each in view.directories:
        room = each.problem or f"{size_text(each.free)} of {size_text(each.capacity)} free"
        click.echo(f"  {printable(each.path)} ({each.uuid or 'away'}): {printable(room)}")
    if view.unknown:
        _show_unknown(config, view.uuid)


def _show_unknown(config: ReceiverConfig, node: str) -> None:
    found = ask_all(
        config,
        f"{_REMOTE}/{node}/unknown",
        UnknownTablets,
        lambda page: page.tablets,
        {},
        partial(unknown_tablets, node=node),
    )
    rows = [(each.id, each.files, size_text(each.size)) for each in found]
    show(UnknownTablets(tablets=found), False, _UNKNOWN_HEADERS, rows, "")


@click.command(
    epilog=f"Example: tsferry-receiver nodes found 0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f. {_said}"
)
@click.argument("node")
@json_option(FoundNode)
@click.pass_obj
def found(invocation: Invocation[ReceiverConfig], node: str, as_json: bool) -> None:
    """Say that NODE, which was declared lost, is there after all."""
    uuid = _say(invocation, node, "found")
    if as_json:
        emit_json(FoundNode(found=uuid))
    else:
        click.echo(f"{printable(node)} is there")


@click.command(
    epilog=f"Example: tsferry-receiver nodes accept 0f4e1c0e9a8b4d7c8e6f5a4b3c2d1e0f. {_said}"
)
@click.argument("node")
@json_option(NodeAccepted)
@click.pass_obj
def accept(invocation: Invocation[ReceiverConfig], node: str, as_json: bool) -> None:
    """Let the next start of NODE go on, of whatever copy of its directory.

    For one that was restored from a copy: it is refused as a clone until then.
    """
    uuid = _say(invocation, node, "accept")
    if as_json:
        emit_json(NodeAccepted(accept=uuid))
    else:
        click.echo(f"{printable(node)} may go on")


@click.command(
    "confirm-master",
    epilog="Example: tsferry-receiver --config node.toml nodes confirm-master. Exit codes: 0 done; "
    "2 this is no storage node; 3 its master is not doubted; 4 the node does not run.",
)
@json_option(MasterConfirmed)
@click.pass_obj
def confirm_master(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """At a storage node: take the master as it is, though it lacks commits that were seen of it."""
    config = invocation.load().value
    if not config.node.master:
        raise UsageError("this is no storage node: node.master is not set")
    OperatorClient(config).tell("POST", _CONFIRM)
    if as_json:
        emit_json(MasterConfirmed(confirmed=True))
    else:
        click.echo("the master is taken as it is")


def chosen_node(server: OperatorClient, node: str) -> str:
    """The uuid of what was typed: a path is no segment of one of the server's paths.

    Raises:
        NotFoundError: there is no such node.
        ConflictError: there are several.
    """
    page = server.ask("GET", "/v1/nodes", NodesPage)
    known = [(each.uuid, each.name, each.state == "lost") for each in page.nodes]
    return choose_node(known, node)


def _say(invocation: Invocation[ReceiverConfig], node: str, word: str) -> str:
    """Say it of a node; returns its uuid."""
    server = OperatorClient(invocation.load().value)
    uuid = chosen_node(server, node)
    server.tell("POST", f"/v1/nodes/{uuid}/{word}")
    return uuid


def _age(view: RemoteNodeView) -> str:
    if view.age is None:
        return "-"
    return f"{view.age:.1f} s ago" if view.heard else f"not for {view.age:.0f} s"


def _notes(view: RemoteNodeView) -> str:
    found = []
    if view.unknown:
        found.append(f"{counted(view.unknown, 'tablet')} unknown")
    if view.damaged:
        found.append(f"{view.damaged} damaged")
    if view.doubt or view.behind:
        found.append("has seen commits that are not here")
    if view.refused:
        found.append("another start of it was refused")
    away = sum(bool(each.problem) for each in view.directories)
    if away:
        found.append(f"{counted(away, 'directory', 'directories')} away")
    return "; ".join(found)


REMOTE_COMMANDS: Final = (show_node, found, accept, confirm_master)
"""Are added to the group `nodes`."""
