"""Verdicts on their way into the metadata engine: through the running server, or by opening it."""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from common import wire
from common.errors import LockedError, TsferryError
from receiver.load.merge_verdicts import (
    BadMerge,
    ProvedMerge,
    dissolve_bad,
    record_merges,
)
from receiver.load.upkeep.verdicts import (
    LONGEST_REASON,
    MOST_VERDICTS,
    Verdict,
    record_verdicts,
)
from receiver.open_engine import open_engine
from receiver.operator.client import NotRunningError, OperatorClient
from receiver.operator.views.verdict_wire import (
    BadCompaction,
    ComparedOutput,
    ProvedCompaction,
    VerdictEntry,
    VerdictsAnswer,
    VerdictsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from receiver.config import ReceiverConfig

__all__ = ["Delivered", "deliver", "deliver_merges", "tell_crowded"]

log = logging.getLogger(__name__)

_MERGES = 200
"""Compactions of one request, at most."""
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
        merges_verified: compactions that are known to give what their inputs give.
    """

    verified: int
    quarantined: int
    stale: int
    dissolved: int = 0
    mended: int = 0
    merges_verified: int = 0


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
            return _plus(total, _into_engine(config, chain([page], pages)))
        total = _plus(total, done)
    return total


def deliver_merges(
    config: ReceiverConfig, bad: Sequence[BadMerge], proved: Sequence[ProvedMerge]
) -> Delivered:
    """Have the inputs of bad compactions read in their place, and commit which ones are right.

    Raises:
        LockedError, TsferryError: see `deliver`.
    """
    total = Delivered(0, 0, 0)
    for wrong, right in _merge_pages(bad, proved, config.listen.max_request_bytes):
        try:
            done = _merges_to_server(config, wrong, right)
        except NotRunningError:
            done = _into_engine(config, (), wrong, right)
        total = _plus(total, done)
    return total


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


def _merges_to_server(
    config: ReceiverConfig, bad: Sequence[BadMerge], proved: Sequence[ProvedMerge]
) -> Delivered:
    request = VerdictsRequest(
        verdicts=[],
        compactions=[BadCompaction(id=each.ident, reason=each.reason) for each in bad],
        proved_compactions=[
            ProvedCompaction(
                id=each.ident,
                outputs=[
                    ComparedOutput(physical=physical, size=size, md5=md5)
                    for physical, size, md5 in each.outputs
                ],
            )
            for each in proved
        ],
    )
    answer = OperatorClient(config).ask("POST", "/v1/verdicts", VerdictsAnswer, body=request)
    return Delivered(
        0, 0, 0, dissolved=answer.dissolved, merges_verified=answer.compactions_verified
    )


def _into_engine(
    config: ReceiverConfig,
    pages: Iterable[Sequence[Verdict]],
    bad: Sequence[BadMerge] = (),
    proved: Sequence[ProvedMerge] = (),
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
        for verdicts in pages:
            total = _plus(total, Delivered(*record_verdicts(engine, verdicts)))
        total = total._replace(dissolved=dissolve_bad(engine, bad))
        return total._replace(merges_verified=record_merges(engine, proved, by="verification"))


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


def _merge_pages(
    bad: Sequence[BadMerge], proved: Sequence[ProvedMerge], limit: int
) -> Iterator[tuple[list[BadMerge], list[ProvedMerge]]]:
    """The same of compactions: one may have thousands of merged files."""
    wrong: list[BadMerge] = []
    right: list[ProvedMerge] = []
    used = _FRAME_BYTES
    every: list[BadMerge | ProvedMerge] = [*map(_sendable_merge, bad), *proved]
    for each in every:
        size = _ENTRY_BYTES
        if isinstance(each, BadMerge):
            size += _json_bytes(each.reason)
        else:
            size += sum(_ENTRY_BYTES + _json_bytes(name) for name, _, _ in each.outputs)
        if (wrong or right) and (len(wrong) + len(right) == _MERGES or used + size > limit):
            yield wrong, right
            wrong, right, used = [], [], _FRAME_BYTES
        if isinstance(each, BadMerge):
            wrong.append(each)
        else:
            right.append(each)
        used += size
    if wrong or right:
        yield wrong, right


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
