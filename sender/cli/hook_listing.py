"""`tsferry-sender hooks`: who is told of what happens, and whether that comes through."""

from __future__ import annotations

import click

from common.console.cli import Invocation, emit_json
from common.errors import EXIT_UNREACHABLE, UsageError
from sender.cli.program import json_option, opened
from sender.config import SenderConfig

__all__ = ["hooks"]


@click.group()
def hooks() -> None:
    """A command and a webhook that are told of what happens (docs/hooks.md)."""


@hooks.command("list", epilog="Example: tsferry-sender hooks list --json. Exit codes: 0; 2.")
@json_option("common.hooks.hook_showing:HooksView")
@click.pass_obj
def list_(invocation: Invocation[SenderConfig], as_machine: bool) -> None:
    """What each hook was told, what waits, and what went wrong last.

    Read from the files of the queues: a daemon may run or not.
    """
    from common.hooks.hook_showing import hooks_view, view_lines
    from sender.hooks.sender_hooks import hooks_directory

    config = invocation.load(secrets=False).value
    view = hooks_view(config.hooks, hooks_directory(config.schema_dir))
    if as_machine:
        emit_json(view)
        return
    for line in view_lines(view):
        click.echo(line)


@hooks.command(
    epilog="Example: tsferry-sender hooks test. Exit codes: 0 each hook took it; 2 none is "
    "configured; 4 one did not."
)
@json_option("common.hooks.hook_showing:HooksAsked")
@click.pass_obj
def test(invocation: Invocation[SenderConfig], as_machine: bool) -> int:
    """Send a test event by each hook now, and say what came of it.

    It goes by no queue, and is sent by this command: as who calls it, outside of the service's
    sandbox.
    """
    from common.hooks.hook_event import HookSource
    from common.hooks.hook_service import ask_hooks
    from common.hooks.hook_showing import HooksAsked, asked_lines

    with opened(invocation) as session:
        if not session.config.hooks.are_any:
            raise UsageError("no hook is configured: see [hooks] in the configuration")
        remote = session.remotes[0]
        who = HookSource(program="sender", uuid=remote.uuid, label=remote.label)
        found = ask_hooks(session.config.hooks, who)
    if as_machine:
        emit_json(HooksAsked(hooks=found))
    else:
        for line in asked_lines(found):
            click.echo(line)
    return 0 if all(each.ok for each in found.values()) else EXIT_UNREACHABLE
