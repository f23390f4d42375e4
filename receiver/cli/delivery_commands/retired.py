"""`retired`: files that their senders have no more."""

from __future__ import annotations

from functools import partial

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import counted, folded, printable, size_text
from receiver.cli.command_answers import RetiredDropped
from receiver.cli.delivery_commands.sender_names import sender_option
from receiver.cli.showing import commit_time, show
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient, ask, ask_all
from receiver.operator.stored.retired import list_retired as page_of_retired
from receiver.operator.stored.retired import show_retired as retired_file
from receiver.operator.views.retired_views import RetiredPage, RetiredView
from receiver.operator.views.wire import RetiredKey

__all__ = ["retired"]

_HEADERS = ("PATH", "SENDER", "SIZE", "POINTS", "SINCE", "ELSEWHERE", "PHYSICAL")


@click.group()
def retired() -> None:
    """Files that their senders have no more, and what of them exists nowhere else."""


@retired.command(
    "list",
    epilog="Example: tsferry-receiver retired list --json. Works without a server too, which "
    "alone knows what exists nowhere else. Exit codes: 0 done; 2 configuration; 4 the receiver "
    "refuses.",
)
@sender_option()
@click.option("--superseded", is_flag=True, help="Those that are left out, for others give all.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@json_option(RetiredPage)
@click.pass_obj
def list_retired(
    invocation: Invocation[ReceiverConfig],
    sender: str | None,
    superseded: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Files, their bytes, and how many points exist nowhere else."""
    state = "superseded" if superseded else None
    found = ask_all(
        invocation.load().value,
        "/v1/retired",
        RetiredPage,
        lambda page: page.files,
        {"sender": sender, "state": state},
        partial(page_of_retired, sender=sender, state=state),
        limit,
    )
    rows = [
        (
            each.path,
            each.sender[:8],
            size_text(each.size),
            each.points,
            commit_time(each.since, each.since_at),
            _elsewhere(each),
            each.physical,
        )
        for each in found
    ]
    show(RetiredPage(files=found), as_json, _HEADERS, rows, "no files")


@retired.command(
    "show",
    epilog="Example: tsferry-receiver retired show sequence/root.sg/0/0/1-1-0-0.0f4e1c0e9a8b4d7c."
    "tsfile. Exit codes: 0 done; 2 no such file, or configuration; 4 the receiver refuses.",
)
@click.argument("physical")
@json_option(RetiredView)
@click.pass_obj
def show_retired(invocation: Invocation[ReceiverConfig], physical: str, as_json: bool) -> None:
    """One file: the series and times that exist nowhere else, or what it rests on."""
    view = ask(
        invocation.load().value,
        lambda server: server.ask(
            "GET", "/v1/retired/file", RetiredView, query={"physical": physical}
        ),
        lambda there: retired_file(there, physical),
    )
    if as_json:
        emit_json(view)
        return
    lines = {
        "path": view.path,
        "sender": view.sender,
        "state": f"{view.state} since {commit_time(view.since, view.since_at)}",
        "size": size_text(view.size),
        "points": str(view.points),
        "elsewhere": _elsewhere(view),
    }
    for name, text in lines.items():
        click.echo(folded(f"{name + ':':18}{text}", 18))
    for each in view.remainder:
        series = f"{each.device}.{each.measurement}" if each.measurement else each.device
        click.echo(
            f"  {printable(series)}: {counted(each.points, 'point')}, {each.first} to {each.last}"
        )
    for physical in view.rests:
        click.echo(f"  rests on {printable(physical)}")
    for physical in view.inside:
        click.echo(f"  read inside {printable(physical)}")
    for path in view.made_of:
        click.echo(f"  made of {printable(path)}")


@retired.command(
    epilog="Example: tsferry-receiver retired drop sequence/root.sg/0/0/1-1-0-0.0f4e1c0e9a8b4d7c."
    "tsfile. Exit codes: 0 done; 2 no such file; 3 it is neither retired nor superseded; "
    "4 the receiver does not run or refuses.",
)
@click.argument("physical", nargs=-1, required=True)
@json_option(RetiredDropped)
@click.pass_obj
def drop(invocation: Invocation[ReceiverConfig], physical: tuple[str, ...], as_json: bool) -> None:
    """Give files up, with the points that exist nowhere else; the history keeps them a while."""
    server = OperatorClient(invocation.load().value)
    dropped = []
    for each in physical:
        key = RetiredKey(physical=each)
        server.tell("POST", "/v1/retired/drop", key)
        dropped.append(key)
        if not as_json:
            click.echo(f"{printable(each)}: dropped")
    if as_json:
        emit_json(RetiredDropped(dropped=dropped))


def _elsewhere(view: RetiredView) -> str:
    """What is known of its points being elsewhere."""
    if view.merged and view.state != "superseded":
        return f"no: it took the place of {counted(view.merged, 'file')} for good"
    if view.state == "superseded":
        return f"all, in {counted(len(view.rests), 'file')}"
    if view.unreadable is not None:
        return f"not known: {view.unreadable}"
    if not view.judged:
        return "not known yet"
    return f"all but {counted(view.unique_points, 'point')} of {view.unique_series} series"
