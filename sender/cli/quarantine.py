"""`tsferry-sender quarantine`: files that a receiver did not take."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import JsonForm
from common.console.terminal import counted, table
from common.errors import UsageError
from sender.cli.program import json_option, opened, receiver_option, warn_of_root
from sender.config import SenderConfig

if TYPE_CHECKING:
    from sender.kept.troubles import Trouble, Troubles
    from sender.send.remote import Remote

__all__ = ["change_troubles", "quarantine"]


@click.group()
def quarantine() -> None:
    """List files that a receiver did not take, retry them, or give them up.

    A file stays here until it is loaded, has other content, or is gone. Those that are not held
    are offered again in each round by themselves.
    """


@quarantine.command("list", epilog="Example: tsferry-sender quarantine list --json")
@receiver_option
@json_option(JsonForm("sender.cli.command_views:QuarantinedShown", shape="list"))
@click.pass_obj
def list_files(
    invocation: Invocation[SenderConfig], names: tuple[str, ...], as_machine: bool
) -> int:
    """Show the files and why they were not taken."""
    from sender.kept.troubles import Troubles
    from sender.round.compared_lists.same_centre import look_for_folders

    rows: list[dict[str, Any]] = []
    with opened(invocation, names) as session:
        for remote in session.remotes:
            with remote.sync_tree() as sync:
                directory = look_for_folders(remote, sync, patient=False).memory
                troubles = Troubles.open(sync, directory, clock=lambda: 0.0)
            rows += [_row(remote.name, each) for each in troubles]
    if as_machine:
        from sender.cli.command_views import QuarantinedShown

        emit_json(rows, list[QuarantinedShown])
    elif rows:
        head = ("receiver", "file", "kind", "hold", "since", "device", "reason")
        click.echo(table(head, [[_cell(row, key) for key in head] for row in rows]))
    else:
        click.echo("nothing is quarantined")
    return 0


def _row(receiver: str, trouble: Trouble) -> dict[str, Any]:
    return {
        "receiver": receiver,
        "file": trouble.path,
        "kind": str(trouble.kind),
        "hold": trouble.hold and not trouble.retry,
        "since": trouble.since,
        "device": trouble.device,
        "reason": trouble.reason,
        "rounds": trouble.rounds,
    }


def _cell(row: dict[str, Any], key: str) -> object:
    if key == "since":
        at = datetime.datetime.fromtimestamp(row[key], datetime.UTC).astimezone()
        return at.isoformat(sep=" ", timespec="seconds")
    return ("yes" if row[key] else "no") if key == "hold" else row[key]


@quarantine.command(
    "retry",
    epilog="Example: tsferry-sender quarantine retry "
    "sequence/root.a/0/0/1581324718762-101-1-0.tsfile",
)
@click.argument("paths", metavar="FILE", nargs=-1)
@click.option(
    "--all", "every", is_flag=True, help="All but what the receiver's operator deleted there."
)
@click.option("--deleted", is_flag=True, help="All that the receiver's operator deleted there.")
@receiver_option
@json_option(JsonForm("sender.cli.command_views:QuarantinedShown", shape="list"))
@click.pass_obj
def retry(
    invocation: Invocation[SenderConfig],
    paths: tuple[str, ...],
    every: bool,
    deleted: bool,
    names: tuple[str, ...],
    as_machine: bool,
) -> int:
    """Let files be tried again in the next round, also those that are held.

    What an operator of the receiver deleted there comes again only if it is named, or with
    --deleted.
    """
    if (every or deleted) == bool(paths):
        raise UsageError("quarantine retry: expected files, or --all, or --deleted")

    def change(troubles: Troubles) -> list[Trouble]:
        if paths:
            return [each for path in paths for each in troubles.retry(_parsed(path))]
        others = troubles.retry() if every else []
        return [*others, *(troubles.retry_deleted() if deleted else [])]

    return _change(invocation, names, change, paths, as_machine, "to be tried again")


@quarantine.command(
    "drop",
    epilog="Example: tsferry-sender quarantine drop "
    "sequence/root.a/0/0/1581324718762-101-1-0.tsfile",
)
@click.argument("paths", metavar="FILE", nargs=-1, required=True)
@receiver_option
@json_option(JsonForm("sender.cli.command_views:QuarantinedShown", shape="list"))
@click.pass_obj
def drop(
    invocation: Invocation[SenderConfig],
    paths: tuple[str, ...],
    names: tuple[str, ...],
    as_machine: bool,
) -> int:
    """Give files up: not sent while they have this content, and in nobody's way. Not deleted."""

    def change(troubles: Troubles) -> list[Trouble]:
        return [each for path in paths for each in troubles.drop(_parsed(path))]

    return _change(invocation, names, change, paths, as_machine, "given up")


def change_troubles(remote: Remote, change: Callable[[Troubles], list[Trouble]]) -> list[Trouble]:
    """Change what is kept of files in trouble with a receiver; returns those concerned."""
    from sender.kept.receiver_state import changing_troubles
    from sender.round.compared_lists.same_centre import look_for_folders

    with remote.sync_tree() as sync:
        directory = look_for_folders(remote, sync, patient=False).memory
        with changing_troubles(sync, directory) as troubles:
            return change(troubles)


def _parsed(path: str) -> Any:
    from common.names import FilePath

    return FilePath.parse(path)


def _change(
    invocation: Invocation[SenderConfig],
    names: tuple[str, ...],
    change: Callable[[Troubles], list[Trouble]],
    paths: tuple[str, ...],
    as_machine: bool,
    what: str,
) -> int:
    rows: list[dict[str, Any]] = []
    with opened(invocation, names) as session:
        warn_of_root(session.config)
        for remote in session.remotes:
            rows += [_row(remote.name, each) for each in change_troubles(remote, change)]
    missing = set(paths) - {row["file"] for row in rows}
    if missing:
        raise UsageError(f"not in quarantine: {', '.join(sorted(missing))}")
    if as_machine:
        from sender.cli.command_views import QuarantinedShown

        emit_json(rows, list[QuarantinedShown])
    else:
        click.echo(f"{counted(len(rows), 'file')} {what}")
    return 0
