"""`files`: the catalogue."""

from __future__ import annotations

import click

from common.cli import Invocation
from common.terminal import size_text
from receiver.cli.showing import commit_time, json_option, sender_option, show
from receiver.config import ReceiverConfig
from receiver.operator.client import ask
from receiver.operator.files import FILE_STATES, list_files
from receiver.operator.paging import collect
from receiver.operator.views import FilesPage

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


@click.command(
    epilog="Example: tsferry-receiver files --state quarantined --json. Works without a server "
    "too. Exit codes: 0 done; 2 configuration; 4 the receiver refuses."
)
@sender_option
@click.option(
    "--state",
    type=click.Choice(FILE_STATES),
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
    query = {"sender": sender, "state": state, "unverified": "true" if unverified else None}
    found = ask(
        invocation.load().value,
        lambda server: collect(
            lambda after, left: server.ask(
                "GET", "/v1/files", FilesPage, query={**query, "after": after, "limit": left}
            ),
            lambda page: page.files,
            limit,
        ),
        lambda there: collect(
            lambda after, left: list_files(
                there, sender=sender, state=state, unverified=unverified, after=after, limit=left
            ),
            lambda page: page.files,
            limit,
        ),
    )
    rows = [
        (
            each.path,
            each.sender[:8],
            each.state if each.reason is None else f"{each.state} ({each.reason})",
            size_text(each.size),
            each.devices,
            each.points,
            commit_time(each.created),
            commit_time(each.verified),
            each.physical,
        )
        for each in found
    ]
    show(FilesPage(files=found), as_json, _HEADERS, rows, "no files")
