"""Commits to the key-value store in etcd: what is done on a condition, and what became of it.

After a write without an answer nobody knows whether it came true, and it may come true later: the
server can have it in a buffer. So the head is set again to what it was, on the same condition: if
that succeeds the write never can; if not, the head says who was first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from common.errors import NoSpaceError, UnreachableError
from receiver.metadata.etcd.messages import Compare, Get, Operation, Put
from receiver.metadata.etcd.patience import Patience, insist
from receiver.metadata.kv.timeline import SeenRevision, Timeline, TimelineHead, nothing
from receiver.metadata.model.errors import CompactedError, KeyConflictError, UnknownOutcomeError

if TYPE_CHECKING:
    from receiver.metadata.etcd.gateway import EtcdClient

__all__ = ["Decider"]


class Decider:
    """Sets the head, and with it what else a commit is; see the module."""

    def __init__(
        self, client: EtcdClient, head: bytes, timeline: Timeline, patience: Patience
    ) -> None:
        self._client = client
        self._head = head
        self._timeline = timeline
        self._patience = patience

    def unchanged(self, before: SeenRevision | None) -> Compare:
        """The condition that the head is as it was seen."""
        return Compare(self._head, changed=0 if before is None else before.changed)

    def decide(
        self,
        before: SeenRevision | None,
        head: TimelineHead,
        conditions: Sequence[Compare],
        operations: Sequence[Operation],
    ) -> SeenRevision:
        """The one transaction that makes a commit true.

        Args:
            before: the head as it was seen when the timestamp was allocated.
            head: the new one.
            conditions: that have to hold besides.
            operations: that are done besides.

        Returns:
            the head as it is seen then.

        Raises:
            KeyConflictError: a condition does not hold; nothing was done.
            UnreachableError: nothing was done, nor will it be.
            UnknownOutcomeError: there was no answer as long as the patience lasted.
        """
        conditions = [self.unchanged(before), *conditions]
        then = [Put(self._head, msgspec.json.encode(head)), *operations]
        try:
            result = self._client.transaction(conditions, then)
        except UnknownOutcomeError as error:
            return self._find_out(before, head, error)
        except NoSpaceError:
            # The one that goes over the quota is told so, and is done nevertheless.
            seen = self._timeline.read(nothing).seen
            if seen is None or seen.head.id != head.id:
                raise
            return seen
        if not result.succeeded:
            raise self.conflict(head)
        created = result.revision if before is None else before.created
        seen = SeenRevision(head, created, result.revision)
        self._timeline.note(seen)
        return seen

    def _find_out(
        self, before: SeenRevision | None, head: TimelineHead, sent: UnknownOutcomeError
    ) -> SeenRevision:
        """What became of a commit that was sent; it is barred if it has not come true."""
        barrier = TimelineHead(0, "", barred=head.id)
        if before is not None:
            barrier = msgspec.structs.replace(before.head, first=before.begun, barred=head.id)
        put = Put(self._head, msgspec.json.encode(barrier))
        try:
            result = insist(
                self._client, self._patience, [self.unchanged(before)], [put], [Get(self._head)]
            )
        except UnreachableError as error:
            raise UnknownOutcomeError(
                f"commit {head.ts} was sent to etcd, which has not answered since; it may be true "
                f"or not: {sent.message}",
                extra={"ts": head.ts},
            ) from error
        seen = None if result.succeeded else SeenRevision.of(result.found[0])
        if result.succeeded or (seen is not None and seen.head.barred == head.id):
            raise UnreachableError(f"nothing was written: {sent.message}") from sent
        if seen is None or seen.head.id != head.id:
            seen = self._in_history(head)
        self._timeline.note(seen)
        return seen

    def _in_history(self, head: TimelineHead) -> SeenRevision:
        """The head of a commit of ours after which others have committed."""
        try:
            seen = self._timeline.at(nothing, head.ts).seen
        except CompactedError as error:
            raise UnknownOutcomeError(
                f"whether commit {head.ts} came true was compacted away", extra={"ts": head.ts}
            ) from error
        if seen is None or seen.head.id != head.id:
            raise self.conflict(head)
        return seen

    def conflict(self, head: TimelineHead) -> KeyConflictError:
        """The error of a commit that another one came before."""
        return KeyConflictError(
            f"another process wrote to {self._head.decode()} in etcd while commit {head.ts} was "
            "being made; nothing of it was written, try again",
            extra={"ts": head.ts},
        )
