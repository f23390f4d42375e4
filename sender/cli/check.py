"""`tsferry-sender check`: address, token, version."""

from __future__ import annotations

from typing import Any

import click

from common.console.cli import Invocation
from common.console.json_option import JsonForm
from common.console.terminal import printable
from sender.cli.program import PROGRAM, emit_receivers, json_option, opened, receiver_option
from sender.config import SenderConfig
from sender.round.round_words.round_report import worst

__all__ = ["check"]


@click.command(epilog="Example: tsferry-sender check --receiver dc1")
@receiver_option
@json_option(JsonForm("sender.cli.command_views:CheckShown", shape="by receiver"))
@click.pass_obj
def check(invocation: Invocation[SenderConfig], names: tuple[str, ...], as_machine: bool) -> int:
    """Ask each receiver who it is: tests address, certificate, token and version.

    Nothing is sent but the question. Exit code 4: a receiver is out of reach, or refuses. A hook
    that cannot be told anything (its command is not there) is a warning: `hooks test` tries them.
    """
    with opened(invocation, names) as session:
        found = {remote.name: _ask(remote) for remote in session.remotes}
        hooks = session.config.hooks.problems()
    code = worst([int(each["exit_code"]) for each in found.values()])
    for problem in hooks:
        click.echo(f"{PROGRAM.name}: warning: {printable(problem)}", err=True)
    if as_machine:
        from sender.cli.command_views import CheckShown

        emit_receivers(found, CheckShown, code)
    else:
        for each in found.values():
            click.echo(printable(_text(each)))
    return code


def _ask(remote: Any) -> dict[str, Any]:
    from common.errors import TsferryError
    from sender.kept.receiver_file import ReceiverFile
    from sender.kept.seen_looks.looks import Looks
    from sender.round.compared_lists.same_centre import look_for_folders

    shown: dict[str, Any] = {
        "receiver": remote.name,
        "url": remote.entry.url,
        "address": None,
        "sender": remote.uuid,
        "version": None,
        "protocol": None,
        "engine": None,
        "history": None,
        "scope": [],
        "wanted": 0,
        "loading": None,
        "schema": False,
    }
    try:
        with remote.sync_tree() as sync:
            directory = look_for_folders(remote, sync, patient=False).memory
            now = ReceiverFile.open(sync, directory).now
            looks = Looks.open(sync, directory)
        remote.prefer(now)
        answer = remote.check(remote.check_request(now, looks.now.last))
    except TsferryError as error:
        problem = {"type": error.slug, "message": error.message}
        return shown | {"ok": False, "error": problem, "exit_code": error.exit_code}
    return shown | {
        "ok": True,
        "address": remote.addresses.now,
        "error": None,
        "exit_code": 0,
        "version": answer.version,
        "protocol": answer.protocol,
        "engine": answer.engine,
        "history": str(answer.history),
        "scope": answer.scope,
        "wanted": len(answer.wanted),
        "loading": answer.busy,
        "schema": answer.schema,
    }


def _text(found: dict[str, Any]) -> str:
    if not found["ok"]:
        return f"{found['receiver']}: {found['error']['message']}"
    scope = ", ".join(found["scope"]) or "all devices"
    return (
        f"{found['receiver']}: {found['address']} answers: version {found['version']}, engine "
        f"{found['engine']}, history {found['history']}, may write {scope}"
    )
