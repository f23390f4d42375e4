"""`compact`: files merged for those who read them."""

from __future__ import annotations

import click

from common.console.cli import Invocation
from common.console.json_option import json_option
from common.errors import EXIT_NOT_LOADED
from receiver.cli.showing import show
from receiver.config import ReceiverConfig
from receiver.operator.asked_work.compact import compact_stopped
from receiver.operator.client import NotRunningError, OperatorClient
from receiver.operator.views.compact_views import CompactView
from receiver.operator.views.wire import CompactRequest

__all__ = ["compact"]

_HEADERS = ("STORAGE GROUP", "PARTITION", "FILES", "TASK", "REASON")


@click.command(
    epilog="Example: tsferry-receiver compact root.turbine 2954. A running server does it behind "
    "the scenes, `status` says how far it is; without one it is done when the command ends. Exit "
    "codes: 0 done, or begun; 2 no such files, or configuration; 3 some could not be merged; 4 the "
    "receiver refuses; 5 another process uses the directories."
)
@click.argument("path")
@click.argument("partition", required=False)
@json_option(CompactView)
@click.pass_obj
def compact(
    invocation: Invocation[ReceiverConfig], path: str, partition: str | None, as_json: bool
) -> int:
    """Merge files of a storage group, or of all below a path, into few that are read for them.

    The files themselves stay as they are.
    """
    config = invocation.load().value
    try:
        request = CompactRequest(path=path, partition=partition)
        view = OperatorClient(config).ask("POST", "/v1/compact", CompactView, body=request)
    except NotRunningError:
        view = compact_stopped(config, path, partition)
    rows = [
        (
            each.storage_group,
            f"{each.virtual_group}/{each.partition}",
            each.files,
            each.work or "-",
            each.reason,
        )
        for each in view.partitions
    ]
    show(view, as_json, _HEADERS, rows, "no files")
    if view.problem is None:
        return 0
    click.echo(view.problem, err=True)
    return EXIT_NOT_LOADED
