"""`status --check` of a receiver: what is a warning, and what is worse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.console.check_line import CheckLevel, CheckLine
from common.console.terminal import counted

if TYPE_CHECKING:
    from receiver.operator.views.status_views import StatusView
    from receiver.storagenode.node_status import NodeStatus

__all__ = ["check_line_of", "node_check_line"]

_NAMED = 3
_BAD, _WORSE = CheckLevel.WARNING, CheckLevel.CRITICAL


def check_line_of(view: StatusView, *, running: bool) -> CheckLine:
    """The line for a status.

    Critical: it does not run or takes no files, files are lost, or a directory is away. A warning:
    everything else that does not come through.
    """
    line = CheckLine(f"{counted(view.senders, 'edge')}, {counted(view.files, 'file')}")
    if not running or not view.ready:
        line.say(_WORSE, view.problem or "it takes no files")
    line.count("lost", view.lost, "file is lost", "files are lost", _WORSE)
    line.count("away", len(view.away), "directory is away", "directories are away", _WORSE)
    line.count("edges", view.senders)
    names = _names(view)
    line.count("late", view.late or 0, f"edge is late{names}", f"edges are late{names}", _BAD)
    line.count("quarantined", view.quarantined, "file is not taken", "files are not taken", _BAD)
    line.count(
        "held_deletes",
        view.held_deletes,
        "list of deletes is held",
        "lists of deletes are held",
        _BAD,
    )
    line.count(
        "failed_tasks",
        view.background.failed,
        "background task has failed",
        "background tasks have failed",
        _BAD,
    )
    if view.clock.doubt is not None:
        line.say(_BAD, "the clock is not believed")
    for each in view.concerns:
        line.say(_BAD, each)
    line.count("files", view.files)
    line.measure("size", view.bytes, "B")
    line.measure("free", view.free_bytes, "B")
    line.measure("staged", view.staged_bytes, "B")
    line.count("loading", view.loading)
    return line


def node_check_line(view: NodeStatus) -> CheckLine:
    """The line for a storage node: critical is that it is of no use now."""
    line = CheckLine(f"a storage node, {counted(view.tablets, 'tablet')}")
    if view.problem is not None:
        line.say(_WORSE, view.problem)
    for each in (*view.concerns, *((view.doubt,) if view.doubt else ())):
        line.say(_BAD, each)
    line.count("tablets", view.tablets)
    line.count("files", view.files)
    line.measure("size", view.bytes, "B")
    line.count("rotten", view.rotten, "file is not what came", "files are not what came", _BAD)
    return line


def _names(view: StatusView) -> str:
    names = [each.label or each.sender for each in view.late_senders[:_NAMED]]
    more = ", ..." if (view.late or 0) > len(names) else ""
    return f" ({', '.join(names)}{more})" if names else ""
