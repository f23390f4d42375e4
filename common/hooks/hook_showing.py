"""What `hooks list` and `hooks test` show, at both ends."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from common.console.terminal import counted, printable
from common.hooks.event_queue import QueueStanding
from common.hooks.hook_service import AskedHook, hook_standings
from common.hooks.hooks_config import HooksConfig, shown_address

__all__ = ["HooksAsked", "HooksView", "asked_lines", "hooks_view", "view_lines"]


class HooksView(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands with the hooks.

    Attributes:
        command: that is run; null for none.
        webhook: where events are posted to, without what is behind the host; null for none.
        events: the kinds that are told; empty for all.
        problems: what keeps a hook from being told anything, as the disk is now.
        hooks: each way out of which there is a queue.
    """

    command: str | None
    webhook: str | None
    events: tuple[str, ...]
    problems: tuple[str, ...]
    hooks: tuple[QueueStanding, ...]


class HooksAsked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a test of the hooks.

    Attributes:
        hooks: of each that is configured, by its way (`command`, `webhook`).
    """

    hooks: dict[str, AskedHook]


def hooks_view(config: HooksConfig, above: Path) -> HooksView:
    """How it stands, by the files; whoever has them open.

    Args:
        config: of the hooks.
        above: directory of the program's own.
    """
    return HooksView(
        command=config.command[0] if config.command else None,
        webhook=None if config.webhook is None else shown_address(config.webhook),
        events=config.events,
        problems=tuple(config.problems()),
        hooks=tuple(hook_standings(config, above)),
    )


def view_lines(view: HooksView) -> Iterator[str]:
    """The same for people."""
    if view.command is None and view.webhook is None:
        yield "no hook is configured: see [hooks] in the configuration"
        return
    for problem in view.problems:
        yield f"problem: {problem}"
    known = {each.way: each for each in view.hooks}
    for way, to in (("command", view.command), ("webhook", view.webhook)):
        if to is None:
            continue
        yield f"{way}  {printable(to)}"
        found = known.get(way)
        if found is None:
            yield "  nothing yet: it was not running since this is configured"
            continue
        yield f"  delivered  {found.delivered}, the last {_moment(found.delivered_at)}"
        yield f"  waiting    {found.waiting}{_of_commits(found)}"
        yield f"  dropped    {found.dropped}"
        yield f"  failed     {counted(found.failed, 'try', 'tries')}{_failure(found)}"


def asked_lines(found: Mapping[str, AskedHook]) -> Iterator[str]:
    """What came of a test of each way out, for people."""
    for way, each in found.items():
        yield f"{way}: {'taken' if each.ok else 'not taken'}: {printable(each.text)}"


def _of_commits(found: QueueStanding) -> str:
    """What is told of commits stands in no queue: it is read from their log."""
    if found.place is None or found.failing_since is None:
        return ""
    return f", and what was committed since {_moment(found.failing_since)}"


def _failure(found: QueueStanding) -> str:
    if not found.error:
        return ""
    since = ""
    if found.failing_since is not None:
        since = f"; nothing came through since {_moment(found.failing_since)}"
    return f", the last {_moment(found.failed_at)}: {printable(found.error)}{since}"


def _moment(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
