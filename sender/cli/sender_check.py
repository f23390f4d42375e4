"""`status --check` of a sender: what is a warning, and what is worse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from common.console.check_line import CheckLevel, CheckLine
from common.console.terminal import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sender.round.look import ReceiverStanding

__all__ = ["check_line_of", "in_the_way"]

_BAD, _WORSE = CheckLevel.WARNING, CheckLevel.CRITICAL
_SOON = 30 * 86400.0
_PASSING = "expired"
"""A trouble of which nobody need hear: the receiver does not want the file any more."""


def in_the_way(found: ReceiverStanding) -> int:
    """How many things keep files from being loaded, that do not pass by themselves."""
    troubles = len([each for each in found.troubles if each["kind"] != _PASSING])
    lost = 0 if found.lost is None else int(found.lost["files"])
    return troubles + lost + len(found.clashes) + len(found.unmounted)


def check_line_of(found: Sequence[ReceiverStanding], now: float, *, wait_alarm: float) -> CheckLine:
    """The line for how things stand with all receivers.

    Critical: files are lost, a directory is not there, or nothing could be found out. A warning:
    files in trouble, held deletions, a last round that ended early or is older than `wait_alarm`, a
    token or certificate that ends within 30 days.

    Args:
        found: with each receiver.
        now: seconds since the epoch.
        wait_alarm: seconds; 0 for never.
    """
    loaded, pending = sum(each.listed for each in found), sum(each.pending_files for each in found)
    line = CheckLine(f"{counted(loaded, 'file')} loaded, {pending} pending")
    for each in found:
        if each.problem is not None:
            line.say(_WORSE, f"{each.receiver}: {each.problem}")
        _judge_round(line, each, now, wait_alarm)
        _judge_ends(line, each, now)
    lost = sum(0 if each.lost is None else int(each.lost["files"]) for each in found)
    line.count("lost", lost, "file is lost", "files are lost", _WORSE)
    away = sum(len(each.unmounted) for each in found)
    line.count("unmounted", away, "directory is not there", "directories are not there", _WORSE)
    for kind in ("conflict", "quarantined", "refused", "failed"):
        count = sum(sum(one["kind"] == kind for one in each.troubles) for each in found)
        line.count(kind, count, f"file in trouble: {kind}", f"files in trouble: {kind}", _BAD)
    line.count(
        "clashes", sum(len(each.clashes) for each in found), "path clashes", "paths clash", _BAD
    )
    held = sum(each.held_there for each in found)
    line.count(
        "held", held, "deletion is held by a receiver", "deletions are held by a receiver", _BAD
    )
    line.count("loaded", loaded)
    line.count("pending", pending)
    line.measure("pending_size", sum(each.pending_bytes for each in found), "B")
    line.count("waiting", sum(len(each.waiting) for each in found))
    return line


def _judge_ends(line: CheckLine, each: ReceiverStanding, now: float) -> None:
    for name, until in (
        ("token", each.token_until),
        ("certificate", each.certificate_until),
        ("client certificate", each.client_certificate_until),
    ):
        if until is not None and until - now < _SOON:
            line.say(_BAD, f"{each.receiver}: the {name} {_ends(until - now)}")


def _ends(left: float) -> str:
    if left <= 0:
        return "has ended"
    return f"ends in {left / 86400:.0f} d" if left >= 86400 else f"ends in {left / 3600:.0f} h"


def _judge_round(line: CheckLine, each: ReceiverStanding, now: float, wait_alarm: float) -> None:
    last: Mapping[str, Any] = each.last_round or {}
    error, ended = each.ended_early, last.get("ended")
    if error is not None:
        line.say(_BAD, f"{each.receiver}: the last round ended early: {error.get('message')}")
    if isinstance(ended, int | float):
        line.measure(f"'{each.receiver} age'", max(0.0, now - ended), "s")
        if wait_alarm and now - ended > wait_alarm:
            line.say(_BAD, f"{each.receiver}: no round for {(now - ended) / 3600:.0f} h")
    elif each.problem is None:
        line.say(_BAD, f"{each.receiver}: no round yet")
