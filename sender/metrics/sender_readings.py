"""The values of a sender's measures: what its last rounds came to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import common
from common.config.shared_rules import PER_MILLISECOND
from common.durable import free_bytes
from common.metering.measures import Readings
from sender.metrics.sender_measures import IN_THE_WAY, SENDER_MEASURES
from sender.metrics.sender_measures import SenderMeasures as of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.hooks.event_queue import QueueStanding
    from sender.config import SenderConfig
    from sender.metrics.round_tallies import RoundTallies
    from sender.metrics.rounds_seen import RoundsSeen
    from sender.round.round_words.round_report import RoundReport

__all__ = ["sender_text"]


def sender_text(
    config: SenderConfig,
    uuid: str,
    label: str,
    seen: Iterable[RoundsSeen],
    *,
    started: float | None = None,
    hooks: Iterable[QueueStanding] = (),
) -> bytes:
    """All measures of a sender, as they are scraped.

    Args:
        config: of the sender.
        uuid: of it.
        label: that it goes by.
        seen: its rounds, by receiver.
        started: when the daemon was, seconds since the epoch; None without one.
        hooks: how it stands with each.
    """
    into = Readings(SENDER_MEASURES)
    into.put(of.INFO, 1, label, uuid, common.__version__)
    into.put(of.STARTED, started)
    for each in config.data_dirs:
        try:
            into.put(of.FREE, free_bytes(each), str(each))
        except OSError:
            continue  # it is away; the round says so
    for rounds in seen:
        _put_rounds(into, rounds, config)
    for hook in hooks:
        into.put(of.HOOKS_DELIVERED, hook.delivered, hook.way)
        into.put(of.HOOKS_FAILED, hook.failed, hook.way)
        into.put(of.HOOKS_DROPPED, hook.dropped, hook.way)
        into.put(of.HOOKS_WAITING, hook.waiting, hook.way)
        into.put(of.HOOKS_FAILING, hook.failing_since, hook.way)
    return into.text()


def _put_rounds(into: Readings, rounds: RoundsSeen, config: SenderConfig) -> None:
    name, last, looked = rounds.receiver, rounds.last, rounds.looked
    if rounds.tallies is not None:
        _put_tallies(into, name, rounds.tallies)
        into.put(of.BUSY, rounds.busy, name)
    if last is None:
        return
    into.put(of.ROUND_AT, rounds.at, name)
    into.put(of.ROUND_CODE, last.exit_code, name)
    into.put(of.FAILING_SINCE, last.failing_since, name)
    if last.address is not None:
        into.put(of.ADDRESS, 1, name, last.address)
    into.put(of.ROUND_SECONDS, last.seconds, name)
    into.put(of.ROUND_FILES, last.sent, name)
    into.put(of.ROUND_BYTES, last.bytes, name)
    into.put(of.TOKEN_EXPIRY, last.token_until, name)
    into.put(of.CERTIFICATE_EXPIRY, last.certificate_until, name)
    into.put(of.CLIENT_CERTIFICATE_EXPIRY, last.client_certificate_until, name)
    if rounds.tallies is None and last.error is None:
        into.put(of.SUCCESS_AT, rounds.at, name)
    if last.verified is not None:
        into.put(of.LOADED, last.verified.files, name)
        into.put(of.VERIFIED, last.verified.verified, name)
    if last.schema is not None and last.schema.position is not None:
        into.put(of.UNAPPLIED, last.schema.position.unapplied, name)
    if looked is not None:
        _put_looked(into, name, looked, config)


def _put_looked(into: Readings, name: str, looked: RoundReport, config: SenderConfig) -> None:
    into.put(of.PENDING, looked.pending_files, name)
    into.put(of.PENDING_BYTES, looked.pending_bytes, name)
    into.put(of.WAITING, looked.waiting, name)
    into.put(of.UNMOUNTED, len(looked.unmounted), name)
    if looked.complete_until is not None:
        unit = 1000 * PER_MILLISECOND[config.time_unit]
        into.put(of.COMPLETE, looked.complete_until / unit, name)
    for trouble in IN_THE_WAY:
        count = len(getattr(looked, trouble))
        if trouble == "held":
            count += len(looked.held_records)
        into.put(of.TROUBLE, count, name, trouble)


def _put_tallies(into: Readings, name: str, tallies: RoundTallies) -> None:
    for (result,), count in tallies.rounds.sums().items():
        into.put(of.ROUNDS, count, name, result)
    into.put_distribution(of.DURATIONS, tallies.durations.distribution(), name)
    sums = tallies.sums.sums()
    for measure, what in (
        (of.FILES, "files"),
        (of.BYTES, "bytes"),
        (of.DELETED, "deleted"),
        (of.RESUMED, "resumed"),
    ):
        into.put(measure, sums.get((what,), 0.0), name)
    if tallies.success_at:
        into.put(of.SUCCESS_AT, tallies.success_at, name)
