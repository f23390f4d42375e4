"""What a sender says of itself between rounds: a heartbeat, made of the report of the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import common
from common import wire
from common.console.terminal import printable, shortened
from common.durable import free_bytes
from common.network.certificates import CertificateFile
from sender.round.round_words.round_report import RoundReport

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sender.send.remote import Remote

__all__ = ["NO_DAEMON", "heartbeat_of", "least_room"]

NO_DAEMON = "no daemon"
"""The state of a sender that is called by cron: it speaks at the end of its rounds alone."""
_LONGEST_PROBLEM = 300


def heartbeat_of(
    remote: Remote,
    last: RoundReport | None,
    looked: RoundReport | None,
    *,
    state: str,
    at: float,
) -> wire.Heartbeat:
    """The sign of life for a receiver.

    Args:
        remote: to it.
        last: the last round with it, None before the first.
        looked: the last one that looked at the files, and so knows how many are in the way.
        state: what the sender does.
        at: when the last round ended, seconds since the epoch.
    """
    last, looked = last or RoundReport(remote.name), looked or RoundReport(remote.name)
    return wire.Heartbeat(
        version=common.__version__,
        label=remote.label,
        state=state,
        free_bytes=least_room(remote.config.data_dirs),
        client_certificate_until=CertificateFile(remote.entry.client_cert).until(),
        pending_files=last.pending_files,
        pending_bytes=last.pending_bytes,
        complete_until=last.complete_until,
        conflicts=len(looked.conflicts),
        quarantined=len(looked.quarantined),
        failed=len(looked.refused) + len(looked.failed),
        waiting=looked.waiting,
        overdue=len(looked.overdue),
        held=len(looked.held) + len(looked.held_records),
        lost=len(looked.lost),
        round_at=at,
        problem=""
        if last.error is None
        else shortened(printable(last.error.message), _LONGEST_PROBLEM),
    )


def least_room(directories: Iterable[Path]) -> int | None:
    """Free bytes of the directory that has least; None if none can be looked at."""
    found = []
    for each in directories:
        try:
            found.append(free_bytes(each))
        except OSError:
            continue
    return min(found, default=None)


def _problem(message: str) -> str:
    return shortened(printable(message), _LONGEST_PROBLEM)
