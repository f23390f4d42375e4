"""`ttl`: the older word for `clock confirm`."""

from __future__ import annotations

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient
from receiver.operator.views.wire import TtlAnswer

__all__ = ["ttl"]


@click.group()
def ttl() -> None:
    """Files that are older than their storage group keeps (set it with SQL: set ttl to ...)."""


@ttl.command(
    epilog="Example: tsferry-receiver ttl resume. Exit codes: 0 done; 2 configuration; "
    "4 the receiver does not run or refuses."
)
@json_option(TtlAnswer)
@click.pass_obj
def resume(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """Confirm that the clock of the receiver's machine is right: `clock confirm` in older words.

    While the clock is in doubt files expire by the time that passes, and not by that clock;
    `status` shows it.
    """
    answer = OperatorClient(invocation.load().value).ask("POST", "/v1/ttl/resume", TtlAnswer)
    if as_json:
        emit_json(answer)
    elif answer.was_suspended is None:
        click.echo("the clock was not in doubt, TTL was not suspended")
    else:
        click.echo("the clock is taken for right; files expire by it again")
