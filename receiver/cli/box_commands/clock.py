"""`clock`: confirm the clock of the receiver's machine, where nothing else does."""

from __future__ import annotations

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from receiver.config import ReceiverConfig
from receiver.operator.client import OperatorClient
from receiver.operator.views.wire import ClockAnswer

__all__ = ["clock"]


@click.group()
def clock() -> None:
    """The clock that commits, history, TTL and the reaper go by."""


@clock.command(
    epilog="Example: tsferry-receiver clock confirm. Exit codes: 0 done; 2 configuration; "
    "4 the receiver does not run or refuses."
)
@json_option(ClockAnswer)
@click.pass_obj
def confirm(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """Confirm that the clock of the receiver's machine is right as it is now.

    The receiver does not follow a clock that was set by more than metadata.clock_jump, or that
    stands further from the newest commit at a start, unless the kernel calls it synchronised or
    senders' clocks agree with it; `status` shows it. Look at `date -u` on that machine first.
    The confirmation is committed.
    """
    answer = OperatorClient(invocation.load().value).ask("POST", "/v1/clock/confirm", ClockAnswer)
    if as_json:
        emit_json(answer)
    elif answer.was_doubted is None:
        click.echo("the clock was not in doubt; the confirmation is noted")
    else:
        click.echo("the clock is taken for right; timestamps follow it")
