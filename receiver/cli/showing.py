"""How commands show times and lists."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import click

from common import wire
from common.console.cli import emit_json
from common.console.terminal import table

__all__ = ["commit_time", "moment", "show"]
_COUNTER_BITS = 18
"""A commit timestamp is milliseconds << 18 | counter."""


def show(
    value: wire.Struct,
    as_json: bool,
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    none: str,
) -> None:
    """Write a struct as JSON, or rows of it as a table (`none` where there is no row)."""
    if as_json:
        emit_json(value)
    elif rows:
        click.echo(table(headers, rows))
    else:
        click.echo(none)


def moment(seconds: float | None) -> str:
    """A time in the zone of this machine."""
    if seconds is None:
        return "-"
    try:
        at = datetime.datetime.fromtimestamp(seconds, datetime.UTC).astimezone()
    except (OverflowError, ValueError, OSError):
        return str(seconds)
    return at.isoformat(" ", "seconds")


def commit_time(ts: int, at: float | None = None) -> str:
    """When a commit was made.

    Args:
        ts: of it; 0 for none.
        at: when that was, by what is known of the clock; None where a server does not tell.
    """
    if not ts:
        return "-"
    return moment((ts >> _COUNTER_BITS) / 1000 if at is None else at)
