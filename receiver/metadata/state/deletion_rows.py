"""The rows of what senders delete: records of deletion files, and lists that wait for a verdict.

A record is known with the look that told of it first: it reaches files that were closed before
that look, and of those only its author's (`table_rows.author_of`).
"""

from __future__ import annotations

import msgspec

from receiver.metadata.model.records import DeletesVerdict
from receiver.metadata.state.table_rows import CommittedRow, author_of

__all__ = ["DeleteWindowRow", "DeletionsRow", "DeletionsSegment", "HeldDeletesRow"]


class DeletionsSegment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Records of a deletion file that were seen first by one look.

    Attributes:
        end: bytes of the deletion file up to their end.
        floor: see `records.DeletionsNoted`.
        commit: that noted them, or let them be applied.
        applied: see `records.DeletionsNoted`.
        held: the digest of the list of held deletes that they stand on, while they do.
        kept: see `records.DeletionsNoted`.
    """

    end: int
    floor: int
    commit: int
    applied: bool
    held: str = ""
    kept: bool | None = None

    @property
    def may_apply(self) -> bool:
        """Whether they are kept, as far as is known, and no operator decided about them."""
        return not self.applied and not self.held and self.kept is not False


class DeletionsRow(CommittedRow, frozen=True, kw_only=True):
    """What is known of the deletion file of a TsFile; see `records.DeletionsNoted`.

    Attributes:
        path: of the TsFile at its sender.
        physical: the loaded file; None while there is none.
        content: the whole records, from the begin.
        segments: which look saw which of them, in order.
        past: the commit since which they are of no file any more, and hide points of what had ended
            (`records.ListBegun`); 0 for none.
        was: the loaded file that they were of until then, if they were of one.
        by: see `records.DeletionsNoted`, where it is the author.
        heir: see `records.DeletionsNoted`.
    """

    sender: str
    path: str
    physical: str | None
    form: str
    content: bytes
    segments: tuple[DeletionsSegment, ...]
    past: int = 0
    was: str | None = None
    by: str = ""
    heir: str = ""

    @property
    def author(self) -> str:
        """Whose files it reaches."""
        return author_of(self.sender, self.by)


class DeleteWindowRow(CommittedRow, frozen=True, kw_only=True):
    """What a sender deleted in a storage group since the commit `begun`.

    Attributes:
        listed: files that were listed then.
        count: of these, deleted or hidden since, without a proof.
    """

    sender: str
    group: str
    begun: int
    listed: int
    count: int


class HeldDeletesRow(CommittedRow, frozen=True, kw_only=True):
    """A list of held deletes; see `records.DeletesHeld`.

    Attributes:
        verdict: `allow` or `drop`, None while nobody has decided.
        used: the look that told files of it after the verdict; None before one did.
    """

    digest: str
    sender: str
    group: str
    files: tuple[str, ...]
    records: bool
    reason: str
    look: int
    verdict: DeletesVerdict | None = None
    used: int | None = None
