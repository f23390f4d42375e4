"""The schema of a forwarding centre: what changed in the receiver on this node.

Its commits take the place of a log: the position above is one of them. Where the history of the
receiver does not reach back to it any more, the whole schema is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.formats.schemaitems import encode_items
from common.wire import SchemaKind, SchemaPosition, SchemaStaged
from sender.schema.notes import Shipping

if TYPE_CHECKING:
    from common.formats.schemaitems import SchemaChanges
    from sender.schema.notes import SchemaNotes
    from sender.send.catalogue_calls import CatalogueCalls

__all__ = ["ChangesLog", "ChangesPlan"]


@dataclass(frozen=True, slots=True)
class ChangesPlan:
    """What is to be sent: all changes between two commits.

    Attributes:
        identity: of the receiver's engine.
        base: the commit that is applied above; 0 for the whole schema.
        data: the changes, as JSON lines.
        offset: the commit that they lead to.
        reason: why the whole is sent, in words; None where it goes on.
    """

    identity: str
    base: int
    data: bytes
    offset: int
    reason: str | None = None

    kind = SchemaKind.CHANGES
    news = 0

    @property
    def size(self) -> int:
        """Bytes that are to be sent."""
        return len(self.data)

    @property
    def shipping(self) -> Shipping | None:
        """Nothing to note: what was begun is not gone on with."""
        return None


class ChangesLog:
    """The changes of a receiver, asked for over its own calls."""

    def __init__(self, client: CatalogueCalls) -> None:
        self._client = client

    def plan(
        self, applied: SchemaPosition | None, notes: SchemaNotes, *, whole: bool
    ) -> ChangesPlan | None:
        """What is to be sent, None for nothing.

        Commits that changed nothing of the schema are a plan without data. Said along with files it
        brings the position on, so the receiver need not look through them again, nor the position
        fall out of its history.

        Args:
            applied: what the receiver above says.
            notes: of this sender; not needed.
            whole: the operator wants all to be sent again.

        Raises:
            TsferryError: the receiver on this node does not answer as it should.
        """
        after = 0 if whole or applied is None else applied.offset
        pages = list(self._pages(after, None if applied is None else applied.identity))
        first = pages[0]
        data = b"".join(encode_items(page.items) for page in pages)
        if not data and first.after == after and first.commit == after:
            return None
        reason = None
        if first.after == 0:
            reason = "as the operator wants it" if whole else "changes do not reach back so far"
            reason = "nothing of it is there yet" if applied is None else reason
        return ChangesPlan(f"engine-{first.engine}", first.after, data, first.commit, reason)

    def _pages(self, after: int, identity: str | None) -> Iterator[SchemaChanges]:
        page = self._client.schema_changes(after)
        if after and identity != f"engine-{page.engine}":  # commits of another engine mean nothing
            page = self._client.schema_changes(0)
        yield page
        while page.next is not None:
            page = self._client.schema_changes(page.after, page.next)
            yield page

    def goes_on(
        self, plan: ChangesPlan, staged: SchemaStaged, notes: SchemaNotes
    ) -> ChangesPlan | None:
        """Never: what changed meanwhile stands in the midst."""
        return None

    def mark(self, plan: ChangesPlan) -> str:
        """Nothing: the commit says all."""
        return ""

    def blocks(
        self, plan: ChangesPlan, begin: int, budget: int
    ) -> Iterator[tuple[int, bytes, dict[int, bytes]]]:
        """Pieces of the changes, as those of a text log."""
        for at in range(begin, plan.size, budget):
            yield at, plan.data[at : at + budget], {}
