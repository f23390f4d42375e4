"""`files`: the catalogue."""

from __future__ import annotations

import click

from common.cli import Invocation
from receiver.cli.showing import commit_time, json_option, show, size
from receiver.config import ReceiverConfig
from receiver.operator import directories
from receiver.operator.client import NotRunningError, Server
from receiver.operator.views import FilesPage, FileView

__all__ = ["files"]

_HEADERS = (
    "PATH",
    "SENDER",
    "STATE",
    "SIZE",
    "DEVICES",
    "POINTS",
    "LOADED",
    "VERIFIED",
    "PHYSICAL",
)
_STATES = ("live", "retired", "quarantined", "deleted", "expired")


@click.command(
    epilog="Example: tsferry-receiver files --state quarantined --json. Works without a server "
    "too. Exit codes: 0 done; 2 configuration; 4 the receiver refuses."
)
@click.option("--sender", help="Only of the sender with this uuid.")
@click.option(
    "--state",
    type=click.Choice(_STATES),
    help="Only in this state; the expired are among the deleted.",
)
@click.option("--unverified", is_flag=True, help="Only those that no verification has proved.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@json_option
@click.pass_obj
def files(
    invocation: Invocation[ReceiverConfig],
    sender: str | None,
    state: str | None,
    unverified: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """Files that were loaded, in order of their physical paths."""
    config = invocation.load().value
    try:
        found = _from_server(Server(config), sender, state, unverified, limit)
    except NotRunningError:
        found = directories.files(config, sender, state, unverified, limit)
    rows = [
        (
            each.path,
            each.sender[:8],
            each.state if each.reason is None else f"{each.state} ({each.reason})",
            size(each.size),
            each.devices,
            each.points,
            commit_time(each.created),
            commit_time(each.verified),
            each.physical,
        )
        for each in found
    ]
    show(FilesPage(files=found), as_json, _HEADERS, rows, "no files")


def _from_server(
    server: Server, sender: str | None, state: str | None, unverified: bool, limit: int | None
) -> list[FileView]:
    found: list[FileView] = []
    after: str | None = None
    while limit is None or len(found) < limit:
        query = {
            "sender": sender,
            "state": state,
            "unverified": "true" if unverified else None,
            "after": after,
            "limit": None if limit is None else limit - len(found),
        }
        page = server.ask("GET", "/v1/files", FilesPage, query=query)
        found += page.files
        if page.next is None:
            break
        after = page.next
    return found
