"""`hooks`: who is told of what happens, and whether that comes through."""

from __future__ import annotations

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.errors import EXIT_UNREACHABLE, TsferryError, UsageError
from common.hooks.hook_service import ask_hooks
from common.hooks.hook_showing import HooksAsked, HooksView, asked_lines, hooks_view, view_lines
from receiver.config import ReceiverConfig
from receiver.hooks.receiver_hooks import receiver_source
from receiver.operator.client import OperatorClient
from receiver.operator.views.status_views import StatusView

__all__ = ["hooks"]


@click.group()
def hooks() -> None:
    """A command and a webhook that are told of what happens (docs/hooks.md)."""


@hooks.command("list", epilog="Example: tsferry-receiver hooks list --json. Exit codes: 0; 2.")
@json_option(HooksView)
@click.pass_obj
def list_(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """What each hook was told, what waits, and what went wrong last.

    Read from the files of the queues: it may run or not. What was committed and not told of yet is
    not counted here, and said to wait while nothing comes through; the measures count it.
    """
    config = invocation.load(secrets=False).value
    config.must_have_directories()
    view = hooks_view(config.hooks, config.schema_dir)
    if as_json:
        emit_json(view)
        return
    for line in view_lines(view):
        click.echo(line)


@hooks.command(
    epilog="Example: tsferry-receiver hooks test. Exit codes: 0 each hook took it; 2 none is "
    "configured; 4 one did not."
)
@json_option(HooksAsked)
@click.pass_obj
def test(invocation: Invocation[ReceiverConfig], as_json: bool) -> int:
    """Send a test event by each hook now, and say what came of it.

    It goes by no queue, and is sent by this command: as who calls it, outside of the service's
    sandbox.
    """
    config = invocation.load().value
    invocation.start(config.log)
    if not config.hooks.are_any:
        raise UsageError("no hook is configured: see [hooks] in the configuration")
    found = ask_hooks(config.hooks, receiver_source(_engine(config)))
    if as_json:
        emit_json(HooksAsked(hooks=found))
    else:
        for line in asked_lines(found):
            click.echo(line)
    return 0 if all(each.ok for each in found.values()) else EXIT_UNREACHABLE


def _engine(config: ReceiverConfig) -> str:
    """The uuid of the engine; empty where the receiver does not run."""
    try:
        return OperatorClient(config).ask("GET", "/v1/status", StatusView).engine
    except TsferryError:
        return ""
