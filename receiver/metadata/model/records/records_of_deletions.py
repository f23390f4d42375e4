"""Records of the log about deletion files, and deletes that are counted and held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from receiver.metadata.model.records.record_parts import Record

DeletesVerdict = Literal["allow", "drop", "use", "done"]
"""What became of a list of held deletes."""


class DeletionsNoted(Record, frozen=True, tag=30):
    """What a look found in the deletion file of a TsFile, behind what was known of it.

    Attributes:
        sender: whose.
        path: of the TsFile at the sender; it need not be loaded, nor closed.
        physical: the loaded file that has it; None while none has.
        form: `mods` (text) or `mods2` (binary).
        base: bytes that were known before; 0 for a file that begins anew.
        content: what follows them, in whole records.
        floor: the last look that could have seen these records and did not; they hide their times
            in every file that was closed in that look, or before it. 0 where no look could have.
        applied: whether readers leave out what is deleted.
        held: the digest of the list of held deletes that these records stand on, if they do.
        author: in whose files, and by which engine's looks, `floor` counts, of a forwarded one
            (`FileOrigin.author`); empty for the sender and its own looks.
        kept: of what neither is applied nor held, whether its sender may let it be applied yet:
            False where an operator dropped it, None where it is not known (earlier versions).
        heir: who took over from this sender and has the deletion file; empty for its own. It is of
            no file of this one, be that under the same path.
    """

    sender: str
    path: str
    physical: str | None
    form: str
    base: int
    content: bytes
    floor: int
    applied: bool = True
    held: str = ""
    author: str = ""
    kept: bool | None = None
    heir: str = ""


class KeptRecordsApplied(Record, frozen=True, tag=46):
    """Records of a deletion file that were only kept hide from this commit on, or are held.

    Attributes:
        sender: whose.
        path: of the TsFile.
        physical: the loaded file that has them; None while none has.
        form: see `DeletionsNoted`.
        ends: up to which bytes of the deletion file each part of them goes.
        held: see `DeletionsNoted`.
        heir: see `DeletionsNoted`.
    """

    sender: str
    path: str
    physical: str | None
    form: str
    ends: Sequence[int]
    held: str = ""
    heir: str = ""


class DeletesCounted(Record, frozen=True, tag=40):
    """What a sender deleted in a storage group, and no proof explains: counted in a window of time.

    Attributes:
        sender: whose.
        group: the storage group.
        count: files that are deleted, or that are hidden whole, in this commit.
        listed: of a window that begins with this commit, the files that were listed before it;
            None where an earlier one goes on.
    """

    sender: str
    group: str
    count: int
    listed: int | None = None


class DeletesHeld(Record, frozen=True, tag=41):
    """Deletes that were told and are not applied, until an operator lets this list through.

    Attributes:
        digest: of the list: another list has another.
        sender: whose.
        group: the storage group.
        files: those that it would delete or hide, by their physical paths.
        records: whether it is of records of deletion files, which are noted in the same commit.
        reason: why, for people.
        look: that told it; 0 where it was not told.
        replaces: the digest of the list whose place it takes, if it takes one's.
    """

    digest: str
    sender: str
    group: str
    files: Sequence[str]
    records: bool
    reason: str
    look: int = 0
    replaces: str = ""


class DeletesSettled(Record, frozen=True, tag=42):
    """What becomes of a list of held deletes.

    Attributes:
        digest: of the list.
        verdict: `allow`: files may be deleted when they are told as gone once more, records hide
            from this commit on; `drop`: files are retired when they are told, records never hide;
            `use`: files of it were told in the look `look`, the only one that may; `done`: nothing
            is left to be told.
        look: see `use`.
    """

    digest: str
    verdict: DeletesVerdict
    look: int = 0
