"""`tsferry-sender sync`, `recover`, `resync`: one round now, and those that do less or more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from common.console.cli import Invocation
from common.console.json_option import JsonForm
from common.console.terminal import counted, printable, size_text
from common.errors import UsageError
from sender.cli.event_lines import EVENT_SHAPES, EventLines
from sender.cli.program import (
    PROGRAM,
    Session,
    emit_receivers,
    json_option,
    opened,
    receiver_option,
    stopping,
    warn_of_root,
)
from sender.cli.quarantine import change_troubles
from sender.config import SenderConfig
from sender.round.round_words.round_report import as_text, worst

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sender.round.round import RoundOptions
    from sender.round.round_words.round_report import RoundReport
    from sender.round.round_words.shown_rounds import (
        ReasonShown,
        RoundAhead,
        RoundShown,
        WaitingShown,
    )
    from sender.schema.standing import SchemaAhead
    from sender.send.remote import Remote
    from sender.send.sent_bytes.progress import Told

__all__ = ["recover", "resync", "run_rounds", "show_reports", "sync"]


_HEARD_S = 0.25
"""A signal may reach any thread, but only the first one answers it: it wakes this often."""

_MOVED = (
    "--allow-mass-delete does nothing here any more: the receiver holds many deletions, and its "
    "operator lets them through with tsferry-receiver deletes allow; a node that was exchanged or "
    "restored is accepted with --accept-source"
)


@click.command(
    epilog="Example, from cron: tsferry-sender sync --json >> /var/log/tsferry-rounds.json",
)
@receiver_option
@click.option("--dry-run", is_flag=True, help="Show what a round would do; send nothing.")
@click.option(
    "--accept-source",
    is_flag=True,
    help="What this node has is all that it should have, though it was exchanged or restored.",
)
@click.option(
    "--accept-receiver",
    is_flag=True,
    help="The centre that answers is the right one, though another took over from it.",
)
@click.option(
    "--allow-mass-delete",
    is_flag=True,
    hidden=True,
    help="Not here any more: tsferry-receiver deletes allow.",
)
@json_option(
    JsonForm("sender.round.round_words.shown_rounds:RoundShown", shape="by receiver"),
    JsonForm("sender.round.round_words.shown_rounds:RoundAhead", "with `--dry-run`", "by receiver"),
)
@json_option(
    *(
        JsonForm(f"sender.cli.event_shapes:{kind}", f"with `event` = `{event}`", "lines")
        for event, kind in EVENT_SHAPES.items()
    ),
    flag="--jsonl",
    name="as_lines",
    text="Write a JSON object a line as things happen, for logs: see docs/json.md.",
)
@click.pass_obj
def sync(
    invocation: Invocation[SenderConfig],
    names: tuple[str, ...],
    dry_run: bool,
    accept_source: bool,
    accept_receiver: bool,
    allow_mass_delete: bool,
    as_machine: bool,
    as_lines: bool,
) -> int:
    """Do one round now with each receiver: what cron calls.

    Where the daemon runs, it is asked for a round and its progress is shown. With --json one
    object is written (docs/json.md); of several receivers `receivers` (name: object) and
    `exit_code`.
    """
    if as_lines and (as_machine or dry_run):
        raise UsageError("--jsonl: not together with --json or --dry-run")
    if allow_mass_delete:
        click.echo(f"{PROGRAM.name}: warning: {_MOVED}", err=True)
    with opened(invocation, names) as session:
        if dry_run:
            return _dry_run(session, accept_source, as_machine)
        from sender.round.round import RoundOptions

        warn_of_root(session.config)
        options = RoundOptions(accept_source=accept_source, accept_receiver=accept_receiver)
        done: dict[str, RoundReport] = {}
        if as_lines:
            lines = EventLines()
            reports = run_rounds(session, options, done, lines.show)
            code = lines.ended(reports)
        else:
            reports = run_rounds(session, options, done)
            code = show_reports(reports, as_machine)
        _write_measures(session, done)
        _tell_hooks(session, done)
        return code


def _write_measures(session: Session, done: Mapping[str, RoundReport]) -> None:
    """Write the file for node_exporter, where one is configured, and no daemon writes it."""
    path = session.config.metrics.textfile
    if path is None or done.keys() != {each.name for each in session.config.receivers}:
        return
    from sender.metrics.metrics_out import write_textfile
    from sender.metrics.rounds_seen import RoundsSeen
    from sender.metrics.sender_readings import sender_text

    remote, now = session.remotes[0], session.remotes[0].clock()
    seen = [
        RoundsSeen(name, report, report if report.looked else None, now)
        for name, report in done.items()
    ]
    write_textfile(path, sender_text(session.config, remote.uuid, remote.label, seen))


def _tell_hooks(session: Session, done: Mapping[str, RoundReport]) -> None:
    """Tell hooks of the rounds that this process did; a daemon tells of its own."""
    if not session.config.hooks.are_any or not done:
        return
    from sender.hooks.sender_hooks import tell_of_rounds

    remote = session.remotes[0]
    tell_of_rounds(session.config, remote.uuid, remote.label, done.values())


@click.command(epilog="Example: tsferry-sender recover --json")
@receiver_option
@json_option(JsonForm("sender.round.round_words.shown_rounds:RoundShown", shape="by receiver"))
@click.pass_obj
def recover(invocation: Invocation[SenderConfig], names: tuple[str, ...], as_machine: bool) -> int:
    """Fold in what the receiver committed of an interrupted task, and clean up.

    Every round begins with this; by hand it is wanted only to see that all is in order. Nothing
    is sent. Twice does no harm.
    """
    with opened(invocation, names) as session:
        from sender.round.round import RoundOptions

        warn_of_root(session.config)
        return show_reports(run_rounds(session, RoundOptions(only_recover=True)), as_machine)


@click.command(epilog="Example: tsferry-sender resync --schema --receiver dc1")
@receiver_option
@click.option("--schema", is_flag=True, help="Send the whole schema again as well.")
@click.option(
    "--deleted", is_flag=True, help="Send what the receiver's operator deleted there again as well."
)
@json_option(JsonForm("sender.round.round_words.shown_rounds:RoundShown", shape="by receiver"))
@click.pass_obj
def resync(
    invocation: Invocation[SenderConfig],
    names: tuple[str, ...],
    schema: bool,
    deleted: bool,
    as_machine: bool,
) -> int:
    """Throw the list of loaded files away and compare all with the receiver's inventory.

    Nothing that is loaded travels again; deletions wait for the round after. For when something
    was changed at the receiver that this node cannot know of. With --schema what the schema log
    says is told there once more: for when something of it could not be applied, and can be now.
    What the receiver's operator deleted there stays so, but with --deleted.
    """
    with opened(invocation, names) as session:
        from sender.round.round import RoundOptions

        warn_of_root(session.config)
        reports = run_rounds(session, RoundOptions(forget=True, schema=schema))
        if deleted:
            for remote in session.remotes:
                change_troubles(remote, lambda troubles: troubles.retry_deleted())
            reports = run_rounds(session, RoundOptions())
        return show_reports(reports, as_machine)


def run_rounds(
    session: Session,
    options: RoundOptions,
    done: dict[str, RoundReport] | None = None,
    show: Callable[[Told], None] | None = None,
) -> dict[str, RoundShown]:
    """A round with each receiver, all at the same time; receiver -> its report.

    Args:
        session: with the receivers.
        options: of the rounds.
        done: is given the reports of the rounds that this process did itself.
        show: hears of each file, in the place of a line on the terminal.
    """
    from common.console.progress_bar import WorkProgress
    from sender.send.sent_bytes.progress import ShownRounds

    progress = WorkProgress()
    heard = _Heard(show or ShownRounds(progress).show, show is not None)
    with stopping(session.stop):
        try:
            with ThreadPoolExecutor(len(session.remotes), "receiver") as pool:
                running = {
                    remote.name: pool.submit(_round, remote, options, heard)
                    for remote in session.remotes
                }
                while wait(running.values(), timeout=_HEARD_S).not_done:
                    pass
                return {name: _noted(name, each.result(), done) for name, each in running.items()}
        except BaseException:
            session.stop.set()
            raise
        finally:
            progress.clear()


def _noted(
    name: str, found: RoundReport | RoundShown, done: dict[str, RoundReport] | None
) -> RoundShown:
    from sender.round.round_words.round_report import RoundReport

    if not isinstance(found, RoundReport):
        return found
    if done is not None:
        done[name] = found
    return found.as_json()


class _Heard(NamedTuple):
    """Who hears of a round, and whether of each file."""

    show: Callable[[Told], None]
    events: bool


def _round(remote: Remote, options: RoundOptions, heard: _Heard) -> RoundReport | RoundShown:
    from common.errors import LockedError, TsferryError
    from sender.round.round import Round
    from sender.round.round_words.round_report import RoundReport
    from sender.send.sent_bytes.progress import Meter

    try:
        lock = remote.lock()
    except LockedError as locked:
        try:
            return _by_daemon(remote, options, heard, locked)
        except TsferryError as error:
            return RoundReport(remote.name, error=error).as_json()
    try:
        report = Round(remote, options, Meter(remote.name, heard.show, events=heard.events)).run()
        _tell_of(remote, report)
        return report
    finally:
        lock.release()


def _tell_of(remote: Remote, report: RoundReport) -> None:
    """Tell the receiver how things stand; a daemon does that by itself, and cron has none.

    Once, and only behind a round that came to its end: what did not answer then is not asked again.
    """
    from common.errors import TsferryError
    from sender.round.round_words.said_of_itself import NO_DAEMON, heartbeat_of

    if report.error is None and report.looked:
        beat = heartbeat_of(remote, report, report, state=NO_DAEMON, at=remote.clock())
        with suppress(TsferryError):
            remote.client.heartbeat(beat)


def _by_daemon(
    remote: Remote, options: RoundOptions, heard: _Heard, locked: Exception
) -> RoundShown:
    """Ask the process that holds the lock."""
    from msgspec.structs import asdict

    from common.errors import LockedError
    from sender.daemon.control import ask
    from sender.send.sent_bytes.progress import RoundEvent, RoundProgress

    def tell(event: dict[str, Any]) -> None:
        kind = RoundEvent if "happened" in event else RoundProgress
        known = {name: event[name] for name in kind.__struct_fields__ if name in event}
        heard.show(kind(**known))

    request = {"do": "round", "receiver": remote.name, "events": heard.events} | asdict(options)
    try:
        answer = ask(remote.config.schema_dir, request, tell=tell, stop=remote.stop.is_set)
    except LockedError as error:
        raise LockedError(f"{locked}; {error.message}") from error
    report: RoundShown = answer["report"]
    return report


def show_reports(reports: dict[str, RoundShown], as_machine: bool) -> int:
    """Print the reports; returns the exit code of the command."""
    code = worst([int(report["exit_code"]) for report in reports.values()])
    if as_machine:
        from sender.round.round_words.shown_rounds import RoundShown

        emit_receivers(reports, RoundShown, code)
    else:
        for report in reports.values():
            click.echo(as_text(report))
    for report in reports.values():
        if report["error"] is not None and as_machine:
            message = printable(f"{report['receiver']}: {report['error']['message']}")
            click.echo(f"{PROGRAM.name}: error: {message}", err=True)
    return code


def _dry_run(session: Session, accept_source: bool, as_machine: bool) -> int:
    from sender.round.look import dry_run as look

    plans = {remote.name: look(remote, accept_source=accept_source) for remote in session.remotes}
    code = 0
    if as_machine:
        from sender.round.round_words.shown_rounds import RoundAhead

        emit_receivers(plans, RoundAhead, code)
    else:
        for plan in plans.values():
            click.echo("\n".join(map(printable, _plan_lines(plan))))
    return code


def _plan_lines(plan: RoundAhead) -> list[str]:
    told = sum(each["resource_only"] for task in plan["tasks"] for each in task["additions"])
    alone = f", and tell the .resource alone of {told}" if told else ""
    lines = [
        f"{plan['receiver']}: a round would send {counted(plan['files'], 'file')} "
        f"({size_text(plan['bytes'])}) in {counted(len(plan['tasks']), 'task')}{alone}; "
        "nothing was sent"
    ]
    lines += _schema_lines(plan["schema"])
    for task in plan["tasks"]:
        for each in task["additions"]:
            if each["resource_only"]:
                continue
            verb = "replace" if each["replaces"] else "send"
            lines.append(f"  {verb} {each['file']} ({size_text(each['size'])})")
        lines += [f"  gone {each}" for each in task["deletions"]]
    several: dict[str, Sequence[ReasonShown | WaitingShown]] = {
        "held": plan["held"],
        "skipped": plan["skipped"],
        "waiting": plan["waiting"],
    }
    for word, found in several.items():
        lines += [f"  {word} {each['file']}: {each['reason']}" for each in found]
    return lines


def _schema_lines(schema: SchemaAhead | None) -> list[str]:
    if schema is None:
        return []
    if schema["problem"] is not None:
        return [f"  schema: {schema['problem']}"]
    whole = f", the whole: {schema['whole']}" if schema["whole"] else ""
    return [f"  schema {size_text(schema['bytes'])}{whole}"]
