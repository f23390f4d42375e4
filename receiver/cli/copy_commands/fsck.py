"""`fsck`: whether what is on the disk is what was loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import msgspec

from common.console.cli import Invocation, emit_json
from common.console.json_option import JsonForm, json_option
from common.console.progress_line import showing_progress
from common.console.terminal import counted, printable, size_text, table
from common.errors import LockedError, UsageError
from receiver.cli.copy_commands.checked_copies import check_copies
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient
from receiver.operator.views.copy_views import BackView, MendRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.load.upkeep.fsck_findings import Report

__all__ = ["fsck"]

_HEADERS = ("KIND", "PATH", "FOUND", "REPAIR")
_AT_ONCE: Final = 50
"""Files of a call: it lasts until all of them are here."""


@click.command(
    epilog="Example: tsferry-receiver fsck --json. Exit codes: 0 all is well, or was put right; "
    "1 something is wrong; 2 configuration, or there is no receiver; 4 with --storage: the store "
    "does not answer; 5 --repair while it runs."
)
@click.option("--repair", is_flag=True, help="Put right what can be; the server must be down.")
@click.option(
    "--cut-log",
    is_flag=True,
    help="With --repair: cut a damaged log of the engine where the damage begins.",
)
@click.option(
    "--without-nodes",
    is_flag=True,
    help="With --repair: what only storage nodes could have is not waited for.",
)
@click.option(
    "--confirm",
    is_flag=True,
    help="With --repair: however much senders are asked for again; else it is a tenth at most.",
)
@click.option(
    "--storage", "of_store", is_flag=True, help="Check the object store in place of the disks."
)
@click.option(
    "--adopt",
    is_flag=True,
    help="With --storage: take back objects of known files that no commit tells of.",
)
@click.option("--deep", is_flag=True, help="With --storage: read the bytes of each object too.")
@json_option(
    "receiver.load.upkeep.fsck_findings:Report",
    JsonForm("receiver.storage.objects.object_check:CopiesReport", "with `--storage`"),
)
@click.pass_obj
def fsck(
    invocation: Invocation[ReceiverConfig],
    repair: bool,
    cut_log: bool,
    without_nodes: bool,
    confirm: bool,
    of_store: bool,
    adopt: bool,
    deep: bool,
    as_json: bool,
) -> int:
    """Check every loaded file, the logs and the directories; or what is in the object store.

    Without --repair nothing is changed, and a server may run. With it nothing is deleted either:
    bad files are quarantined, so that their senders send them again, and files that nobody knows
    are set aside. What the object store or storage nodes are to have whole is not called bad: a
    damaged one is set aside, and who reads it fetches it. While the server runs, --repair has it
    bring back from the nodes what is damaged or missing here, and changes nothing else. With
    --without-nodes what no node gave is quarantined all the same. Where that is more than a tenth
    of all files, it says of what, and changes nothing without --confirm.

    With --storage each object is asked for with its size and digest. What is missing or damaged
    there is put once more from the copy here; if that is bad too it is left to the server, which
    puts there what a storage node gives, or wanted again where none is to have it. Objects that no
    row names are told of, and left. With --adopt, and the server down, a commit says of files that
    are in the store only, and that a schema directory from before their upload does not know to be
    there, that they are: after all of their bytes were read and compared.
    """
    from receiver.load.upkeep import fsck as checking

    if cut_log and not repair:
        raise UsageError("--cut-log: expected with --repair")
    if without_nodes and not repair:
        raise UsageError("--without-nodes: expected with --repair")
    if confirm and (of_store or not repair):
        raise UsageError("--confirm: expected with --repair, and without --storage")
    if deep and not of_store:
        raise UsageError("--deep: expected with --storage")
    if adopt and not of_store:
        raise UsageError("--adopt: expected with --storage")
    if of_store:
        if cut_log:
            raise UsageError("--cut-log: expected without --storage")
        return check_copies(
            invocation.load().value,
            repair=repair,
            adopt=adopt,
            deep=deep,
            without_nodes=without_nodes,
            as_json=as_json,
        )
    config = invocation.load().value
    with showing_progress(as_json) as told:
        try:
            report = checking.fsck(
                config,
                repair=repair,
                cut_log=cut_log,
                without_nodes=without_nodes,
                confirm=confirm,
                told=told,
            )
        except LockedError:
            report = checking.fsck(config, told=told)
            if cut_log or without_nodes or not (bad := _at_nodes(report)):
                raise
            report = _with_server(OperatorClient(config), report, bad)
    if as_json:
        emit_json(report)
        return 0 if report.good else 1
    rows = [
        (
            each.kind,
            each.path,
            each.detail,
            f"done: {each.repair}" if each.repaired else each.repair or "-",
        )
        for each in report.found
    ]
    if rows:
        click.echo(table(_HEADERS, rows))
    if report.remote:
        click.echo(
            f"{counted(report.remote, 'file is', 'files are')} in the object store only, "
            "and not looked at"
        )
    left = sum(not each.repaired for each in report.found)
    click.echo(
        f"{counted(report.files, 'file')}, {size_text(report.bytes)} checked; "
        f"{counted(len(rows), 'problem')} found, {left} left"
    )
    click.echo(f"engine: {printable(report.engine or 'unreadable')}")
    if left and not repair:
        click.echo("nothing was changed; with the server down, --repair puts right what can be")
    return 0 if report.good else 1


def _at_nodes(report: Report) -> list[str]:
    return [each.path for each in report.found if each.is_bad_file and each.elsewhere == "nodes"]


def _with_server(client: OperatorClient, report: Report, bad: Sequence[str]) -> Report:
    """Have the running server bring back what it can from storage nodes."""
    failed: dict[str, str] = {}
    for begin in range(0, len(bad), _AT_ONCE):
        some = MendRequest(files=tuple(bad[begin : begin + _AT_ONCE]))
        answer = client.ask("POST", "/v1/copies/mend", BackView, body=some)
        failed.update((each.physical, each.reason) for each in answer.failed)
    asked = set(bad)
    found = [
        msgspec.structs.replace(each, repair=failed[each.path])
        if each.path in failed
        else msgspec.structs.replace(each, repaired=each.path in asked and each.is_bad_file)
        for each in report.found
    ]
    return msgspec.structs.replace(report, found=found)
