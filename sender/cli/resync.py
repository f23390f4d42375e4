"""`tsferry-sender resync`: forget what was synced and plan anew."""

from __future__ import annotations

import click

from common.cli import Invocation
from sender.cli.program import json_option, opened, receiver_option
from sender.config import SenderConfig

__all__ = ["resync"]


@click.command(epilog="Example: tsferry-sender resync --schema --receiver dc1")
@receiver_option
@click.option("--schema", is_flag=True, help="Send the whole schema again as well.")
@json_option
@click.pass_obj
def resync(
    invocation: Invocation[SenderConfig], names: tuple[str, ...], schema: bool, as_machine: bool
) -> int:
    """Throw the list of loaded files away and compare all with the receiver's inventory.

    Nothing that is loaded travels again; deletions wait for the round after. For when something
    was changed at the receiver that this node cannot know of. With --schema what the schema log
    says is told there once more: for when something of it could not be applied, and can be now.
    """
    from sender.cli.sync import run_rounds, show_reports

    with opened(invocation, names) as session:
        from sender.round.round import RoundOptions

        reports = run_rounds(session, RoundOptions(forget=True, schema=schema))
        return show_reports(reports, as_machine)
