"""`tsferry-sender status`: how things stand, with the daemon or without."""

from __future__ import annotations

import datetime
import re
import time
from typing import TYPE_CHECKING

import click

from common.config.shared_rules import PER_MILLISECOND
from common.console.cli import Invocation, emit_json
from common.console.json_option import JsonForm
from common.console.terminal import counted, folded, size_text
from common.errors import (
    EXIT_HELD,
    EXIT_NOT_LOADED,
    EXIT_UNREACHABLE,
    TsferryError,
    UsageError,
    by_slug,
)
from sender.cli.program import Session, json_option, opened, receiver_option
from sender.cli.sender_check import in_the_way
from sender.config import SenderConfig
from sender.round.round_words.round_report import worst
from sender.schema.standing import schema_lines

if TYPE_CHECKING:
    from common.console.check_line import CheckLine
    from sender.cli.command_views import DaemonShown
    from sender.round.look import ReceiverStanding
    from sender.round.round_words.shown_rounds import LastRound, TroubleShown, VerifiedShown

__all__ = ["status"]

_SHOWN = 20
_COLUMN = 18
_NAMED = re.compile(r"  \S.{13}  \S")
"""A line with a name, and what is said of it in that column."""
_SOON = 30 * 86400.0


@click.command(epilog="Example: tsferry-sender status --safe-to-delete --json")
@receiver_option
@click.option(
    "--safe-to-delete",
    is_flag=True,
    help="List the files that `free` would remove first, asked now, one path a line. For looking: "
    "what happens between this list and a removal by other means, it cannot know.",
)
@click.option(
    "--verified",
    is_flag=True,
    help="With --safe-to-delete: only files that every receiver has verified since it has them.",
)
@click.option(
    "--check",
    "as_plugin",
    is_flag=True,
    help="One line with figures, as monitoring plugins write it; exit codes 0 OK, 1 WARNING "
    "(files are in trouble, or the last round failed), 2 CRITICAL (files are lost, or nothing can "
    "be found out of a receiver), 3 UNKNOWN (the check itself does not come through, as with a "
    "wrong configuration).",
)
@json_option(
    "sender.cli.command_views:StatusShown",
    JsonForm(str, "with `--safe-to-delete`", "list"),
)
@click.pass_obj
def status(
    invocation: Invocation[SenderConfig],
    names: tuple[str, ...],
    safe_to_delete: bool,
    verified: bool,
    as_plugin: bool,
    as_machine: bool,
) -> int:
    """Show for each receiver what is loaded, pending, waiting and in trouble.

    "Complete until" is a data time: nothing older lies here that is not loaded there, but for what
    the receiver is past keeping (expired). With --safe-to-delete nothing is printed, and the exit
    code is 4, if any receiver is out of reach; expired files are not listed, no receiver has them.
    "Verified" is how many of the loaded files the receiver has proved point by point, as of the
    last round's check (in JSON: `verified`, with `verified` of `files`).

    Exit codes: 0 all is well, or only pending; 3 files are in trouble (conflict, quarantined,
    refused, failed), lost, or in a directory that is not there, or the last round ended early; 4 it
    found the receiver out of reach, or was refused; 6 the receiver holds deletions.
    """
    if verified and not safe_to_delete:
        raise UsageError("--verified: expected together with --safe-to-delete")
    if as_plugin and not safe_to_delete:
        from common.console.check_line import run_check

        return run_check(lambda: _checked(invocation, names))
    with opened(invocation, names) as session:
        if safe_to_delete:
            if names:
                raise UsageError("--safe-to-delete asks every receiver: leave --receiver out")
            return _safe_to_delete(session, as_machine, verified=verified)
        return _status(session, as_machine)


def _checked(invocation: Invocation[SenderConfig], names: tuple[str, ...]) -> CheckLine:
    from sender.cli.sender_check import check_line_of
    from sender.round.look import standing

    with opened(invocation, names) as session:
        found = [standing(remote) for remote in session.remotes]
        return check_line_of(found, time.time(), wait_alarm=session.config.wait_alarm)


def _status(session: Session, as_machine: bool) -> int:
    from sender.round.look import standing

    daemon = _daemon(session)
    found = [standing(remote) for remote in session.remotes]
    code = worst([_code(each) for each in found])
    uuid, label = session.remotes[0].uuid, session.remotes[0].label
    if as_machine:
        from sender.cli.command_views import StatusShown

        shown = StatusShown(
            sender=uuid,
            label=label,
            daemon=daemon,
            receivers={each.receiver: each for each in found},
        )
        emit_json(shown, StatusShown)
        return code
    lines = [f"sender {uuid} ({label}), {_daemon_text(daemon)}"]
    lines += _hooks(session.config)
    for each in found:
        lines += ["", *_lines(each, session.config)]
    click.echo("\n".join(folded(each, _COLUMN if _NAMED.match(each) else 0) for each in lines))
    return code


def _hooks(config: SenderConfig) -> list[str]:
    """What is to be said of hooks: that nothing has come through for long."""
    if not config.hooks.are_any:
        return []
    from common.hooks.hook_service import concerns_of, hook_standings
    from sender.hooks.sender_hooks import hooks_directory

    try:
        found = hook_standings(config.hooks, hooks_directory(config.schema_dir))
    except (TsferryError, OSError) as error:  # of a newer program, or not ours to read
        return [f"Hooks: {error}"]
    return [text for each in found for text in concerns_of(each, time.time())]


def _code(found: ReceiverStanding) -> int:
    """What the next round would end with, as far as files are concerned; or the last one did."""
    codes = []
    if (error := found.ended_early) is not None:
        code = by_slug(str(error.get("type"))).exit_code
        codes.append(code if code == EXIT_UNREACHABLE else EXIT_NOT_LOADED)
    if found.problem is not None or in_the_way(found):
        codes.append(EXIT_NOT_LOADED)
    return worst([*codes, EXIT_HELD if found.held_there else 0])


def _daemon(session: Session) -> DaemonShown | None:
    """What the daemon says of itself; None if none runs, which its lock tells, as for `start`."""
    from sender.daemon.control import ask
    from sender.daemon.processes import running

    try:
        answer = ask(session.config.schema_dir, {"do": "status"}, patience=2.0, longer=2.0)
    except TsferryError as error:
        with session.remotes[0].sync_tree() as sync:
            found = running(sync)
        if found is None:
            return None
        return {"pid": found.pid, "silent": error.message, "lanes": {}, "polls_because": None}
    return {
        "pid": answer["pid"],
        "silent": None,
        "lanes": answer["lanes"],
        "polls_because": answer.get("polls_because"),
    }


def _daemon_text(daemon: DaemonShown | None) -> str:
    if daemon is None:
        return "no daemon runs"
    if daemon["silent"] is not None:
        who = "" if daemon["pid"] is None else f" as process {daemon['pid']}"
        return f"a daemon runs{who} and does not answer ({daemon['silent']})"
    polls = f", polls: {daemon['polls_because']}" if daemon.get("polls_because") else ""
    return f"daemon runs as process {daemon['pid']}{polls}"


def _lines(found: ReceiverStanding, config: SenderConfig) -> list[str]:
    lines = [f"{found.receiver}  {found.url}"]
    if found.standby_urls:
        lines.append(f"  answers at      {found.address or 'none of its addresses yet'}")
    if found.problem is not None:
        return [*lines, f"  problem         {found.problem}"]
    pending = f"{counted(found.pending_files, 'file')}, {size_text(found.pending_bytes)}"
    lines += [
        f"  loaded          {counted(found.listed, 'file')}",
        f"  verified        {_verified(found.verified, found.listed)}",
        f"  pending         {pending}",
        f"  complete until  {_data_time(found.complete_until, config)}",
        f"  last round      {_round_text(found.last_round)}",
        f"  last task       {found.last_task or 'none yet'}",
    ]
    if found.let_go:
        why = "past their TTL, deleted by its operator, or another sender's"
        lines.append(f"  let go there    {counted(found.let_go, 'file')} ({why})")
    lines += _ending(found, time.time())
    lines += [f"  list in doubt   {each}" for each in found.doubts]
    if found.lost is not None:
        named = [f"{each['file']}: {each['reason']}" for each in found.lost["named"]]
        lines += _several("lost", named, found.lost["files"])
    for each in found.unmounted:
        lines.append(f"  not mounted     {each.file} {each.reason}")
    for clash in found.clashes:
        lines.append(f"  clash           {clash.reason}")
    lines += _several("in trouble", [_trouble(each) for each in found.troubles])
    lines += schema_lines(found.schema)
    lines += [f"  held            {each.file}: {each.reason}" for each in found.held_records]
    ends = [f"{each['file']}: {each['reason']}" for each in found.named_ends]
    lines += _several("ends held", ends, found.held_ends)
    lines += _several(
        "deletions kept", [f"{each.file}: {each.reason}" for each in found.kept_deletions]
    )
    waiting = [f"{each['file']}: {each['reason']}" for each in found.waiting]
    return lines + _several("waiting", waiting)


def _ending(found: ReceiverStanding, now: float) -> list[str]:
    """The token and the certificates, where they end within 30 days or have ended."""
    all_of_them = (
        ("token", found.token_until),
        ("certificate", found.certificate_until),
        ("client_cert", found.client_certificate_until),
    )
    return [
        f"  {name:<14}  {'has ended' if until <= now else 'ends'} {_local(until)}"
        for name, until in all_of_them
        if until is not None and until - now < _SOON
    ]


def _verified(found: VerifiedShown | None, listed: int) -> str:
    if found is None:
        return "not known"
    if not found["files"]:
        return "nothing was loaded yet at the last check" if listed else "nothing is loaded"
    return f"{found['verified']} of {counted(found['files'], 'file')}, at the last check"


def _trouble(each: TroubleShown) -> str:
    unnamed = each["device"] and each["device"] not in each["reason"]
    device = f" (device {each['device']})" if unnamed else ""
    hold = ", held" if each["hold"] else ""
    return f"{each['file']}: {each['kind']}{hold}: {each['reason']}{device}"


def _several(what: str, texts: list[str], count: int | None = None) -> list[str]:
    if not texts:
        return []
    count = len(texts) if count is None else count
    lines = [f"  {what:<16}{counted(count, 'file')}"] + [f"    {text}" for text in texts[:_SHOWN]]
    if count > _SHOWN:
        lines.append(f"    ... and {count - _SHOWN} more (--json lists them all)")
    return lines


def _data_time(value: int | None, config: SenderConfig) -> str:
    if value is None:
        return "not known"
    seconds = value / (1000 * PER_MILLISECOND[config.time_unit])
    try:
        at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(value)
    return f"{value} ({at.isoformat(timespec='milliseconds')})"


def _local(seconds: float) -> str:
    local = datetime.datetime.fromtimestamp(seconds, datetime.UTC).astimezone()
    return local.isoformat(sep=" ", timespec="seconds")


def _round_text(last: LastRound | None) -> str:
    if last is None:
        return "none yet"
    ended = last.get("ended")
    at = ""
    if isinstance(ended, int | float):
        at = f"{_local(ended)}: "
    error = last.get("error")
    if isinstance(error, dict):
        return f"{at}ended early: {error.get('message')}"
    return f"{at}{counted(last.get('sent', 0), 'file')} loaded"


def _safe_to_delete(session: Session, as_machine: bool, *, verified: bool) -> int:
    from contextlib import ExitStack

    from sender.round.freed_files.freeing import ReceiverWord, judged
    from sender.round.look import viewing

    remotes = [remote for remote in session.remotes if remote.entry.source == "directories"]
    if not remotes:
        raise UsageError("--safe-to-delete: the files here belong to the receiver on this node")
    with ExitStack() as stack:
        views = {remote.name: stack.enter_context(viewing(remote)) for remote in remotes}
        # All of them: one receiver out of reach, and nothing is safe.
        words = {
            remote.name: ReceiverWord.asked(remote, views[remote.name].kept.memory.now)
            for remote in remotes
        }
        scan = next(iter(views.values())).scan
        files = judged(scan, views, words, verified=verified).safe
    for name, word in words.items():
        missing = sum(each.state == "loaded" and not each.stands for each in word.there.values())
        if missing:
            click.echo(
                f"{name}: the bytes of {missing} loaded files do not lie on its disk now; they "
                "are not listed (tsferry-receiver status and fsck say more)",
                err=True,
            )
    paths = [str(file.data_dir / file.rel) for file in files]
    if as_machine:
        emit_json(paths)
    else:
        for path in paths:
            click.echo(path)
    return 0
