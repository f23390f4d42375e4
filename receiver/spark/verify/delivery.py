"""Verdicts on their way into the metadata engine: through the running server, or by opening it."""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from common import wire
from common.errors import LockedError, TsferryError
from receiver.load.upkeep.verdicts import (
    LONGEST_REASON,
    MOST_VERDICTS,
    BadMerge,
    Verdict,
    dissolve_bad,
    record_verdicts,
)
from receiver.open_engine import open_engine
from receiver.operator.client import NotRunningError, OperatorClient
from receiver.operator.wire import (
    BadCompaction,
    VerdictEntry,
    VerdictsAnswer,
    VerdictsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from receiver.config import ReceiverConfig

__all__ = ["Delivered", "deliver", "dissolve", "tell_crowded"]

log = logging.getLogger(__name__)

_MERGES = 200
"""Compactions of one request: their reasons fit into any that a server takes."""
_FRAME_BYTES = 1024
_ENTRY_BYTES = 128
"""Of JSON around a verdict, more than there ever is."""


class Delivered(NamedTuple):
    """What became of verdicts.

    Attributes:
        verified: files that are verified as of now.
        quarantined: files that are in quarantine now; their senders are asked for them again,
            but for those that are as they were sent.
        stale: verdicts about files that are gone, hidden or of other content by now.
        dissolved: compactions that are read no more.
        mended: bad files that storage nodes or the object store had whole; nobody has read them
            anew.
    """

    verified: int
    quarantined: int
    stale: int
    dissolved: int = 0
    mended: int = 0


def deliver(config: ReceiverConfig, verdicts: Sequence[Verdict]) -> Delivered:
    """Commit verdicts, page by page.

    What was committed before an error stays, and all of it may be delivered again.

    Args:
        config: of the receiver.
        verdicts: any number; files that could not be judged are not among them.

    Raises:
        LockedError: no server answers, but another process holds the engine.
        TsferryError: the server refuses them, or cannot be reached.
    """
    total = Delivered(0, 0, 0)
    if not verdicts:
        return total
    pages = _pages(map(_sendable, verdicts), config.listen.max_request_bytes)
    for page in pages:
        try:
            done = _to_server(config, page)
        except NotRunningError:
            rest = ((each, ()) for each in chain([page], pages))
            return _plus(total, _into_engine(config, rest))
        total = _plus(total, done)
    return total


def dissolve(config: ReceiverConfig, merges: Sequence[BadMerge]) -> int:
    """Have the inputs of compactions read in their place; returns of how many that is so.

    Raises:
        LockedError, TsferryError: see `deliver`.
    """
    done = 0
    for low in range(0, len(merges), _MERGES):
        some = [_sendable_merge(each) for each in merges[low : low + _MERGES]]
        entries = [BadCompaction(id=each.ident, reason=each.reason) for each in some]
        request = VerdictsRequest(verdicts=[], compactions=entries)
        try:
            client = OperatorClient(config)
            answer = client.ask("POST", "/v1/verdicts", VerdictsAnswer, body=request)
            done += answer.dissolved
        except NotRunningError:
            done += _into_engine(config, [((), some)]).dissolved
    return done


def tell_crowded(config: ReceiverConfig, partitions: Sequence[wire.CrowdedPartition]) -> None:
    """Tell a server that runs in which partitions there are many files: a hint and no more."""
    if not partitions:
        return
    body = wire.CrowdedReport(partitions=list(partitions))
    try:
        OperatorClient(config).tell("POST", f"{wire.BASE}/catalogue/crowded", body)
    except TsferryError as error:  # none runs: it looks for itself when it starts
        log.debug("the receiver does not hear of crowded partitions: %s", error.message)


def _to_server(config: ReceiverConfig, page: Sequence[Verdict]) -> Delivered:
    request = VerdictsRequest(
        verdicts=[
            VerdictEntry(physical=each.physical, md5=each.md5, bad=each.bad, as_sent=each.as_sent)
            for each in page
        ]
    )
    answer = OperatorClient(config).ask("POST", "/v1/verdicts", VerdictsAnswer, body=request)
    return Delivered(answer.verified, answer.quarantined, answer.stale, mended=answer.mended)


def _into_engine(
    config: ReceiverConfig, pages: Iterable[tuple[Sequence[Verdict], Sequence[BadMerge]]]
) -> Delivered:
    """Without a server this process is the one that writes."""
    try:
        engine = open_engine(config)
    except LockedError as error:
        raise LockedError(
            f"verdicts cannot be committed: {error.message}, and no receiver answers there; start "
            "it (or let the other command end), then verify again"
        ) from error
    total = Delivered(0, 0, 0)
    with engine:
        for verdicts, merges in pages:
            done = Delivered(*record_verdicts(engine, verdicts))
            total = _plus(total, done._replace(dissolved=dissolve_bad(engine, merges)))
    return total


def _pages(verdicts: Iterable[Verdict], limit: int) -> Iterator[list[Verdict]]:
    """Pages that a commit and a request hold; `limit` is that of a request, in bytes."""
    page: list[Verdict] = []
    used = _FRAME_BYTES
    for each in verdicts:
        size = _ENTRY_BYTES + _json_bytes(each.physical) + _json_bytes(each.bad or "")
        if page and (len(page) == MOST_VERDICTS or used + size > limit):
            yield page
            page, used = [], _FRAME_BYTES
        page.append(each)
        used += size
    if page:
        yield page


def _sendable(verdict: Verdict) -> Verdict:
    """A reason may quote what stands in a file: no more of it than is kept, and as UTF-8."""
    if verdict.bad is None:
        return verdict
    reason = verdict.bad[: LONGEST_REASON + 1].encode(errors="replace").decode()
    return verdict._replace(bad=reason)


def _sendable_merge(merge: BadMerge) -> BadMerge:
    reason = merge.reason[: LONGEST_REASON + 1].encode(errors="replace").decode()
    return merge._replace(reason=reason)


def _json_bytes(text: str) -> int:
    return 6 * len(text)  # as \\u0000 at worst


def _plus(one: Delivered, other: Delivered) -> Delivered:
    return Delivered(*(a + b for a, b in zip(one, other, strict=True)))
