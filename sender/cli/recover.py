"""`tsferry-sender recover`: put the lists in order after a crash, and nothing else."""

from __future__ import annotations

import click

from common.cli import Invocation
from sender.cli.program import json_option, opened, receiver_option
from sender.config import SenderConfig

__all__ = ["recover"]


@click.command(epilog="Example: tsferry-sender recover --json")
@receiver_option
@json_option
@click.pass_obj
def recover(invocation: Invocation[SenderConfig], names: tuple[str, ...], as_machine: bool) -> int:
    """Fold in what the receiver committed of an interrupted task, and clean up.

    Every round begins with this; by hand it is wanted only to see that all is in order. Nothing
    is sent. Twice does no harm.
    """
    from sender.cli.sync import run_rounds, show_reports

    with opened(invocation, names) as session:
        from sender.round.round import RoundOptions

        return show_reports(run_rounds(session, RoundOptions(only_recover=True)), as_machine)
