"""`status`: how the receiver is."""

from __future__ import annotations

import click

from common.console.check_line import CheckLevel, CheckLine, run_check
from common.console.cli import Invocation, emit_json
from common.console.json_option import JsonForm, json_option
from common.console.terminal import counted, folded, size_text
from common.errors import EXIT_LATE, EXIT_NOT_LOADED, EXIT_UNREACHABLE, UnreachableError
from receiver.cli.box_commands.receiver_check import check_line_of, node_check_line
from receiver.cli.showing import commit_time, moment
from receiver.config import ReceiverConfig
from receiver.operator.client import NotRunningError, OperatorClient
from receiver.operator.directories import look
from receiver.operator.status import status as status_of
from receiver.operator.views.background_views import BackgroundTotals
from receiver.operator.views.compact_views import MergeTotals
from receiver.operator.views.log_file_views import FollowView
from receiver.operator.views.remote_node_views import NodeTotals
from receiver.operator.views.retired_views import RetiredTotals
from receiver.operator.views.status_views import DirectoryView, StatusView

__all__ = ["status"]

_NAMED = 5
_COLUMN = 18
"""That what is said of a name begins in."""


@click.command(
    epilog="Example: tsferry-receiver status --json. Exit codes: 0 it runs and takes files; "
    "3 files are lost, at both ends; 4 it does not run (what its directories say is shown), or "
    "takes none; 7 a sender is late."
)
@click.option(
    "--check",
    "as_plugin",
    is_flag=True,
    help="One line with figures, as monitoring plugins write it; exit codes 0 OK, 1 WARNING "
    "(something does not come through), 2 CRITICAL (it takes no files, or files are lost), 3 "
    "UNKNOWN (the check itself does not come through, as with a wrong configuration).",
)
@json_option(
    StatusView,
    JsonForm("receiver.storagenode.node_status:NodeStatus", "of a storage node"),
)
@click.pass_obj
def status(invocation: Invocation[ReceiverConfig], as_plugin: bool, as_json: bool) -> int:
    """How the receiver is, in numbers."""
    if as_plugin:
        return run_check(lambda: _checked(invocation.load().value))
    config = invocation.load().value
    if config.node.master:
        return _of_node(config, as_json)
    view, running = _seen(config)
    if as_json:
        emit_json(view)
    else:
        _write(view, running)
    if not view.ready:
        return EXIT_UNREACHABLE
    if view.lost:
        return EXIT_NOT_LOADED
    return EXIT_LATE if view.late else 0


def _seen(config: ReceiverConfig) -> tuple[StatusView, bool]:
    """How it is, and whether it runs."""
    try:
        return OperatorClient(config).ask("GET", "/v1/status", StatusView), True
    except NotRunningError as error:
        with look(config) as there:
            doubt = "" if there.doubt is None else f"; {there.doubt.text}"
            return status_of(there, error.message + doubt), False


def _checked(config: ReceiverConfig) -> CheckLine:
    from receiver.storagenode.node_status import NODE_STATUS, NodeStatus

    try:
        if config.node.master:
            return node_check_line(OperatorClient(config).ask("GET", NODE_STATUS, NodeStatus))
        view, running = _seen(config)
    except UnreachableError as error:  # edges find it so, too: its certificate has ended, say
        line = CheckLine("")
        line.say(CheckLevel.CRITICAL, error.message)
        return line
    return check_line_of(view, running=running)


def _of_node(config: ReceiverConfig, as_json: bool) -> int:
    from receiver.storagenode.node_status import NODE_STATUS, NodeStatus

    view = OperatorClient(config).ask("GET", NODE_STATUS, NodeStatus)
    if as_json:
        emit_json(view)
        return EXIT_UNREACHABLE if view.problem else 0
    heard = "-" if view.heard is None else f"{view.heard:.1f} s ago"
    lines = {
        "state": "running, a storage node",
        "problem": view.problem or "none",
        "concerns": "; ".join(view.concerns) or "none",
        "node": f"{view.node}, start {view.instance}",
        "version": view.version,
        "since": moment(view.started),
        "called at": view.url or "-",
        "master": f"{', '.join(view.masters)}; heard {heard}",
        "engine": view.engine or "none yet",
        "newest commit": str(view.commit),
        "trust": view.doubt or "all orders are carried out",
        "holds": f"{counted(view.tablets, 'tablet')}, {counted(view.files, 'file')}, "
        f"{size_text(view.bytes)}",
        "uploads": f"{view.uploads}, {view.whole_uploads} of them whole, "
        f"{size_text(view.upload_bytes)}",
        "read through": moment(view.scrubbed) if view.scrubbed else "never yet",
    }
    if (kept := view.cache) is not None:
        lines["keeps"] = (
            f"{size_text(kept.used)} of {size_text(kept.capacity)} for readers of the store; gave "
            f"{size_text(kept.from_disk)}, fetched {size_text(kept.from_store)} there and "
            f"{size_text(kept.from_nodes)} at nodes"
        )
    for each in view.directories:
        lines[each.path] = each.problem or f"{size_text(each.free)} free"
    for name, text in lines.items():
        click.echo(folded(f"{name + ':':{_COLUMN}}{text}", _COLUMN))
    return EXIT_UNREACHABLE if view.problem else 0


def _nodes(totals: NodeTotals) -> str:
    if not totals.nodes and not totals.lost:
        return "none"
    text = f"{totals.nodes}, {totals.down} down, {totals.reporting} reporting"
    if totals.lost:
        text += f", {totals.lost} lost"
    if totals.partial:
        text += f", {totals.partial} without a directory of theirs"
    if totals.unknown:
        text += f"; {counted(totals.unknown, 'tablet is', 'tablets are')} not of this catalogue"
    return f"{text}; the longest silence {totals.oldest:.0f} s; {counted(totals.tablets, 'tablet')}"


def _write(view: StatusView, running: bool) -> None:
    state = "running" if running else "not running"
    if running and not view.ready:
        state = "running, not ready" if view.away else "running, takes no files"
    if view.follows is not None:
        state = "running, only reads" if view.ready else "running, only reads, not up to date"
    lines = {
        "state": state,
        "problem": view.problem or "none",
        "concerns": "; ".join(view.concerns) or "none",
        "engine": view.engine or "none yet",
        "version": view.version,
        "since": moment(view.started) if running else "-",
        "newest commit": commit_time(view.newest_commit, view.newest_commit_at),
        "senders": _senders(view),
        "devices": str(view.devices),
        "files": f"{view.files}, {size_text(view.bytes)}",
        "verified": _verified(view),
        "retired": _retired(view.retired),
        "superseded": _superseded(view.retired),
        "merged": _merged(view.merged),
        "background": _background(view.background),
        "storage nodes": _nodes(view.nodes),
        "kept": _kept(view),
        "deleted, on disk": str(view.deleted_files),
        "quarantined": str(view.quarantined),
        "deletes held": counted(view.held_deletes, "list") if view.held_deletes else "none",
        "lost": f"{counted(view.lost, 'file')}: `tsferry-receiver lost`" if view.lost else "none",
        "uploads": str(view.uploads),
        "not loaded yet": f"{size_text(view.staged_bytes)}, {counted(view.loading, 'task')} "
        "to load",
        "loads": _centre_loads(view),
        "free": size_text(view.free_bytes),
        "last backup": moment(view.backup_at),
    }
    if len(view.directories) > 1:
        lines["directories"] = "; ".join(
            f"{each.path} {size_text(each.free_bytes)} free, "
            f"{counted(each.senders, 'sender')}{_drained(each)}"
            for each in view.directories
        )
    lines |= _schema(view)
    if view.follows is not None:
        lines |= _follows(view.follows)
    if view.clock.doubt is not None:
        lines["clock"] = f"not followed since {moment(view.clock.since)}: {view.clock.doubt}"
    if view.away:
        lines["away"] = "; ".join(f"{each.path} {each.reason}" for each in view.away)
    for name, text in lines.items():
        click.echo(folded(f"{name + ':':{_COLUMN}}{text}", _COLUMN))


def _centre_loads(view: StatusView) -> str:
    """Loads at the centre, and what they wait for."""
    texts = []
    for each in view.centre_loads:
        step = "" if each.progress is None else f" {each.progress.step}"
        why = "" if each.trouble is None else f" ({each.trouble})"
        texts.append(f"{each.task}{step}{why}, since {moment(each.begun_at)}")
    return "; ".join(texts) or "none"


def _senders(view: StatusView) -> str:
    """How many, and which of them are late."""
    if not view.late:
        return str(view.senders)
    named = [
        f"{each.label or each.sender} since {moment(each.heard_at)}"
        for each in view.late_senders[:_NAMED]
    ]
    more = f" and {view.late - len(named)} more" if view.late > len(named) else ""
    return f"{view.senders}, {view.late} late: {', '.join(named)}{more}"


def _drained(view: DirectoryView) -> str:
    if view.state != "draining":
        return ""
    drain = view.drain
    if drain is None:
        return ", drained"
    if drain.empty:
        return ", drained: empty, can be taken out"
    return f", drained: {counted(drain.files, 'file')} ({size_text(drain.bytes)}) to move"


def _follows(view: FollowView) -> dict[str, str]:
    behind = "not reached since its start"
    if view.behind is not None:
        behind = f"level with it {view.behind:.1f} s ago"
    if view.problem is not None:
        behind += f"; {view.problem}"
    return {
        "follows": f"{view.url}: {behind}",
        "stands at": commit_time(view.commit, view.commit_at),
        "writer": view.writer or "not known: follow.writer",
    }


def _verified(view: StatusView) -> str:
    text = f"{counted(view.verified, 'file')}, {view.unverified} not yet"
    if view.oldest_verification:
        when = commit_time(view.oldest_verification, view.oldest_verification_at)
        text += f", the oldest verification {when}"
    return text


def _retired(view: RetiredTotals) -> str:
    text = f"{view.waiting_files} wait for a proof, {size_text(view.waiting_bytes)}; "
    text += f"{view.unique_files} have points of their own, {size_text(view.unique_bytes)}"
    if view.problem is not None:
        return f"{text}; {view.problem}"
    return f"{text}; {view.files_per_second:g} files a second" if view.files_per_second else text


def _superseded(view: RetiredTotals) -> str:
    return f"{view.superseded_files}, {size_text(view.superseded_bytes)} still on disk"


def _merged(view: MergeTotals) -> str:
    text = "by hand only" if not view.enabled else ""
    if view.compactions:
        text = (
            f"{counted(view.inputs, 'file is', 'files are')} read as {view.outputs}, "
            f"{size_text(view.output_bytes)}"
        )
        text += f"; the last {commit_time(view.last, view.last_at)}"
        text += f" ({view.did})" if view.did else ""
    if view.final:
        text += f"; {view.final} in place of {view.final_inputs} for good"
        text += f", {size_text(view.final_bytes)}"
    if view.kept_back is not None:
        more = view.kept_back_count - 1
        others = f" (and {more} more, by partition in --json)" if more else ""
        text += f"; not for good: {view.kept_back}{others}"
    if view.unverified:
        text += f"; {counted(view.unverified, 'merge')} not verified"
    if view.waiting:
        text += f"; {view.waiting} wait"
    if view.problem is not None:
        text += f"; {view.problem}"
    return text.removeprefix("; ") or "none"


def _background(view: BackgroundTotals) -> str:
    text = f"{counted(view.waiting, 'task waits', 'tasks wait')}, {view.running} run"
    if view.oldest_waiting_at is not None:
        text += f", the oldest waits since {moment(view.oldest_waiting_at)}"
    if view.overdue:
        text += f"; of {view.overdue} nobody is heard"
    if view.failed:
        text += f"; {view.failed} failed: `tsferry-receiver tasks list --state failed`, the last: "
        last = view.failures[0]
        text += f"{last.kind} of {', '.join(last.scope)}: {last.reason}"
    return text


def _kept(view: StatusView) -> str:
    """What stays of boxes that mirrors took over from, and how an operator ends it."""
    several = [
        f"{counted(each.files, 'file')}, {size_text(each.bytes)}, of {each.sender}: the "
        f"mirror {each.by} took "
        "over from it and never had them: `tsferry-receiver retired list --sender "
        f"{each.sender}`, `retired drop`"
        for each in view.kept
    ]
    return "; ".join(several) or "none"


def _schema(whole: StatusView) -> dict[str, str]:
    view = whole.schema
    limit = "no limit" if view.max_memory is None else f"at most {size_text(view.max_memory)}"
    checkpoint = "none yet"
    if view.checkpoint_at is not None:
        checkpoint = f"{moment(view.checkpoint_at)}, {size_text(view.checkpoint_bytes)}"
    expiring = f"{view.ttl_groups} storage groups, {view.expired_files} expired files on disk"
    lines = {
        "series": f"{view.series} of {counted(view.devices, 'device')} in "
        f"{counted(view.storage_groups, 'group')}",
        "tags": f"{counted(view.tag_entries, 'entry', 'entries')}",
        "schema memory": f"{size_text(view.memory)}, {limit}",
        "history since": moment(whole.history_since),
        "checkpoint": f"{checkpoint}; {view.log_entries} log entries since",
        "TTL": expiring,
    }
    if view.unregistered:
        lines["series"] += (
            f"; {counted(view.unregistered, 'file')} of an earlier version to be registered"
        )
    return lines
