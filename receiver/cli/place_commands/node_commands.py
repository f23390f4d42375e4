"""`nodes`: the places that files lie at, and what is to become of them."""

from __future__ import annotations

from pathlib import Path

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import counted, folded, printable, size_text, table
from receiver.cli.command_answers import ForgottenNode
from receiver.cli.place_commands.remote_node_commands import REMOTE_COMMANDS, chosen_node
from receiver.cli.showing import commit_time, moment
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient, ask
from receiver.operator.places.node_lists import list_nodes
from receiver.operator.views.node_views import CheckView, LossRequest, LossView, NodesPage, NodeView

__all__ = ["nodes"]

_ALONE = "nowhere else"
"""What is told of a storage node that is lost."""
_HEADERS = ("NODE", "KIND", "NAME", "STATE", "SINCE", "FREE", "FILES", "SIZE", "TABLETS")
_CODES = (
    "Exit codes: 0 done; 2 no such node, or configuration; 3 not possible as the node stands; "
    "4 the receiver does not run or refuses."
)


_confirm = click.option("--confirm", is_flag=True, help="Do it; else it is only told.")


@click.group()
def nodes() -> None:
    """Places that files lie at: data directories, and processes that keep files.

    NODE is a uuid, the beginning of one, or a name as `nodes list` has it.
    """


@nodes.command(
    "list",
    epilog="Example: tsferry-receiver nodes list --json. Works without a server too. Exit codes: 0 "
    "done; 2 configuration; 4 the receiver refuses.",
)
@json_option(NodesPage)
@click.pass_obj
def list_all(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """Each node: how it stands, what is free, what lies there, and how far its draining is."""
    found = ask(
        invocation.load().value,
        lambda server: server.ask("GET", "/v1/nodes", NodesPage),
        list_nodes,
    )
    if as_json:
        emit_json(found)
        return
    rows = [
        (
            each.uuid[:8],
            each.kind,
            printable(each.name),
            each.state,
            commit_time(each.since, each.since_at),
            "" if each.free_bytes is None else size_text(each.free_bytes),
            each.files,
            size_text(each.bytes),
            each.tablets,
        )
        for each in found.nodes
    ]
    click.echo(table(_HEADERS, rows) if rows else "no nodes")
    for each in found.nodes:
        for line in _more(each):
            click.echo(f"{printable(each.name)}: {printable(line)}")


@nodes.command(epilog=f"Example: tsferry-receiver nodes drain /srv/disk2. {_CODES}")
@click.argument("node")
@json_option(NodeView)
@click.pass_obj
def drain(invocation: Invocation[ReceiverConfig], node: str, as_json: bool) -> None:
    """Have nothing new come to NODE, and what is there move to others; `nodes list` says how far.

    It goes on over starts of the server, until `nodes undrain`. A directory that is empty can be
    taken out of data_dirs.
    """
    _told(invocation, node, "drain", as_json)


@nodes.command(epilog=f"Example: tsferry-receiver nodes undrain /srv/disk2. {_CODES}")
@click.argument("node")
@json_option(NodeView)
@click.pass_obj
def undrain(invocation: Invocation[ReceiverConfig], node: str, as_json: bool) -> None:
    """Have files come to NODE again; what was moved stays where it is."""
    _told(invocation, node, "undrain", as_json)


@nodes.command(epilog=f"Example: tsferry-receiver nodes lost /srv/disk2 --confirm. {_CODES}")
@click.argument("node")
@_confirm
@json_option(LossView)
@click.pass_obj
def lost(invocation: Invocation[ReceiverConfig], node: str, confirm: bool, as_json: bool) -> None:
    """Say that the disk of NODE does not come back: what nobody else has is asked for again.

    Without --confirm it is only told what is lost with it.
    """
    _lose(invocation, node, LossRequest(confirm=confirm), as_json)


@nodes.command(
    epilog=f"Example: tsferry-receiver nodes replace /srv/disk2 /srv/disk3 --confirm. {_CODES}"
)
@click.argument("node")
@click.argument("path", type=click.Path(path_type=Path))
@_confirm
@json_option(LossView)
@click.pass_obj
def replace(
    invocation: Invocation[ReceiverConfig], node: str, path: Path, confirm: bool, as_json: bool
) -> None:
    """As `nodes lost`, and make the empty directory PATH ready to be used in its place.

    PATH stands in data_dirs; it may be where NODE was. Start the server anew afterwards.
    """
    request = LossRequest(confirm=confirm, replace=str(path.absolute()))
    _lose(invocation, node, request, as_json)


def _lose(
    invocation: Invocation[ReceiverConfig], node: str, request: LossRequest, as_json: bool
) -> None:
    server = OperatorClient(invocation.load().value)
    path = f"/v1/nodes/{chosen_node(server, node)}/lost"
    found = server.ask("POST", path, LossView, body=request)
    if as_json:
        emit_json(found)
        return
    is_process = found.kind == "remote"
    standing = "lost" if found.done else "silent" if is_process else "away"
    click.echo(f"{printable(found.name)} ({found.node}): {standing}")
    lines = {
        "asked for again": f"{counted(found.wanted, 'file')}, {size_text(found.wanted_bytes)}",
        "gone for good": f"{counted(found.gone, 'file')}, {size_text(found.gone_bytes)}: "
        "their senders have "
        "them no more",
        "left out anyway": f"{counted(found.superseded, 'file')}, whose points others give",
        "merges": f"{found.merged}, whose inputs are read again",
        "in the store": f"{counted(found.stored, 'file')}",
        "elsewhere": f"{counted(found.elsewhere, 'file')}",
        "at storage nodes": f"{counted(found.copied, 'file')}, which come back first",
        "perhaps there": f"{counted(found.perhaps, 'file')}, for which nodes are asked first",
        "in quarantine": f"{counted(found.kept, 'file')} whose bytes are gone",
        _ALONE: f"{counted(found.alone, 'file')}, {size_text(found.alone_bytes)}, "
        "that no data "
        "directory has and no other storage node is known to have",
    }
    # The other lines are of what a directory of this receiver had; of one, that line is of no use.
    shown = {name: text for name, text in lines.items() if (name == _ALONE) is is_process}
    for name, text in shown.items():
        click.echo(folded(f"  {name + ':':18}{text}", 20))
    for each in found.first_gone:
        click.echo(f"  gone: {printable(each)}")
    if not found.done:
        click.echo("nothing was changed; --confirm has it so")
    elif found.replaced is not None:
        click.echo(f"{printable(found.replaced)} is used from the next start on: start the server")


@nodes.command(epilog=f"Example: tsferry-receiver nodes forget /srv/disk2. {_CODES}")
@click.argument("node")
@json_option(ForgottenNode)
@click.pass_obj
def forget(invocation: Invocation[ReceiverConfig], node: str, as_json: bool) -> None:
    """List NODE no more: it is empty, or lost, and out of the configuration."""
    server = OperatorClient(invocation.load().value)
    uuid = chosen_node(server, node)
    server.tell("POST", f"/v1/nodes/{uuid}/forget")
    if as_json:
        emit_json(ForgottenNode(forgotten=uuid))
    else:
        click.echo(f"{printable(node)}: forgotten")


def _told(invocation: Invocation[ReceiverConfig], node: str, word: str, as_json: bool) -> None:
    server = OperatorClient(invocation.load().value)
    found = server.ask("POST", f"/v1/nodes/{chosen_node(server, node)}/{word}", NodeView)
    if as_json:
        emit_json(found)
        return
    click.echo(f"{printable(found.name)}: {found.state}")
    for line in _more(found):
        click.echo(printable(line))


def _checked(check: CheckView) -> list[str]:
    """What a round over the names found that is not as it should be."""
    if not (check.missing or check.wrong or check.foreign):
        return []
    line = (
        f"{counted(check.missing, 'file is', 'files are')} missing, {check.wrong} have "
        f"another size, and {check.foreign} "
        f"are not in the catalogue, as of {moment(check.at)}: `tsferry-receiver fsck` says more"
    )
    return [line, *(f"{some.why}: {some.file}" for some in check.some)]


def _more(each: NodeView) -> list[str]:
    """What a line of the table has no room for."""
    lines = []
    if each.state == "down" and each.age is not None:
        lines.append(f"not heard from for {each.age:.0f} s")
    if each.kind == "remote" and each.why:
        lines.append(f"{each.why}: `tsferry-receiver nodes show`")
    if each.state == "away" and each.why:
        lines.append(f"away: {each.why}")
    if each.check is not None:
        lines += _checked(each.check)
    drain = each.drain
    if drain is None:
        return lines
    if drain.empty:
        return [*lines, "it is empty and can be taken out of data_dirs"]
    parts = [f"{counted(drain.files, 'file')} ({size_text(drain.bytes)}) to be moved"]
    if drain.copies:
        parts.append(
            f"{counted(drain.copies, 'copy stays', 'copies stay')} for those who read them here"
        )
    if drain.senders:
        parts.append(f"the folders of {counted(drain.senders, 'sender')} are in use")
    if drain.unknown:
        parts.append(f"{counted(drain.unknown, 'file is', 'files are')} not in the catalogue")
    lines.append("; ".join(parts))
    return lines + [f"stays: {stuck.file}: {stuck.why}" for stuck in drain.stuck]


for _command in REMOTE_COMMANDS:
    nodes.add_command(_command)
