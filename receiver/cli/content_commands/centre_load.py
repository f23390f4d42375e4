"""`load`: TsFiles of this machine, without an edge."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.progress_bar import WorkProgress
from common.console.terminal import printable, size_text
from receiver.cli.awaited_load import await_load, exit_code_of
from receiver.cli.showing import show
from receiver.config import ReceiverConfig
from receiver.operator.centre.load_owners import named_owners
from receiver.operator.client import OperatorClient
from receiver.operator.sql_loads import totals_of
from receiver.operator.views.load_wire import CentreLoadAnswer, CentreLoadRequest

__all__ = ["load"]

_HEADERS = ("RESULT", "SIZE", "SOURCE", "REASON")


@click.command(
    epilog="Example: tsferry-receiver load /mnt/old/data --as plant-7 --dry-run. The server that "
    "runs does it, and has to be able to read the files. Exit codes: 0 done, or it would be; 2 "
    "wrong usage, or there is no such file; 3 a file is bad or refused, and nothing was loaded, or "
    "one is in quarantine since (missing); 4 the receiver does not run, or refuses."
)
@click.argument("paths", nargs=-1)
@click.option(
    "--as",
    "owners",
    multiple=True,
    help="Sender, by uuid or label, whose devices they are. May be repeated; new devices become "
    "those of the first. *: of whoever has them.",
)
@click.option("--sg", help="Storage group of files that do not lie as a database lays them.")
@click.option("--dry-run", is_flag=True, help="Only say what would become of each file.")
@click.option(
    "--on-duplicate",
    type=click.Choice(("error", "keep", "replace", "skip")),
    default="error",
    show_default=True,
    help="Where points of it are here already: refuse the load; or load above "
    "them (keep and replace are the same: nothing is deleted), or below them (skip), so that only "
    "what is missing is given.",
)
@click.option("--wait", "task", help="Load nothing: wait for the end of load TASK, begun before.")
@json_option(CentreLoadAnswer)
@click.pass_context
def load(
    ctx: click.Context,
    paths: tuple[str, ...],
    owners: tuple[str, ...],
    sg: str | None,
    dry_run: bool,
    on_duplicate: str,
    task: str | None,
    as_json: bool,
) -> None:
    """Load the TsFiles of directories or files, all in one commit or none.

    They are copied, never moved. Content that is here already, under whatever name, is left out.
    What stands beside a TsFile goes with it: .resource, .mods, .mods2. Ctrl-C ends this command
    only: the receiver goes on (--wait waits for it again, tasks cancel ends it).
    """
    if bool(paths) == bool(task):
        raise click.UsageError("expected paths of this machine, or --wait with the id of a load")
    invocation: Invocation[ReceiverConfig] = ctx.obj
    server = OperatorClient(invocation.load().value, keep=True)
    owner, others = named_owners(owners)
    request = CentreLoadRequest(
        task=task or secrets.token_hex(16),
        paths=[str(Path(each).absolute()) for each in paths],
        storage_group=sg,
        owner=owner,
        others=others,
        dry_run=dry_run,
        on_duplicate=on_duplicate,
    )
    first = None if task else request
    answer = await_load(server, request.task, first, WorkProgress(quiet=as_json))
    _show(answer, as_json)
    ctx.exit(exit_code_of(each.result for each in answer.files))


def _show(answer: CentreLoadAnswer, as_json: bool) -> None:
    if as_json:
        emit_json(answer)
        return
    rows = [
        (each.result, size_text(each.size), each.source, each.reason or "") for each in answer.files
    ]
    show(answer, as_json, _HEADERS, rows, "no files")
    click.echo(printable(f"{'dry run: ' if answer.dry_run else ''}{totals_of(answer)}"))
