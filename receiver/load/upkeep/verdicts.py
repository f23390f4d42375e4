"""What a verification found, recorded in the engine: proved files, and bad ones for quarantine.

A verdict is about bytes that were read a while ago. It counts only while the file is there, visible
and of the same content; a verdict that came too late is counted as stale, and changes nothing.
Recording the same verdicts twice leads to the same state, but for the time of the verification.

A bad file whose bytes are not those that were loaded is wanted again from its sender. One whose
bytes are as they were sent was bad at its source: the sender would send the same again, and so for
ever. It is put *on hold* in the same commit, as a refused file is (`records.QuarantinePut`): plans
answer for this content at this path with the reason, until other content stands there or an
operator lifts the hold.

A merged file that is bad is nobody's (`receiver.load.merge_verdicts`). One that is
merged for good is never put on hold: nobody sends it, and what it is made of comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from common import crash
from common.errors import TooLargeError
from receiver.metadata.model import records
from receiver.metadata.model.errors import GuardFailed, RefusedCommitError
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from receiver.metadata.engine import Engine
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow, QuarantineRow

__all__ = [
    "LONGEST_REASON",
    "MOST_VERDICTS",
    "Recorded",
    "Verdict",
    "check_number",
    "hold_of",
    "is_held",
    "kept_reason",
    "one_of_each",
    "record_verdicts",
]

MOST_VERDICTS = 10_000
"""Verdicts of one commit."""
_ATTEMPTS = 20
LONGEST_REASON = 500
"""Characters of a reason that are kept."""


class Verdict(NamedTuple):
    """What was found of a loaded file.

    Attributes:
        physical: its name at the receiver.
        md5: of the content that the verdict is about, 32 hex digits.
        bad: why it is bad; None if everything was proved.
        as_sent: of a bad file, whether its bytes are those that were loaded, by size and MD5, so
            that sending it again would bring nothing else.
    """

    physical: str
    md5: str
    bad: str | None = None
    as_sent: bool = False


class Recorded(NamedTuple):
    """What became of verdicts.

    Attributes:
        verified: files that are verified as of now.
        quarantined: files that are in quarantine, put there now or before.
        stale: verdicts about files that are gone, hidden or of other content by now.
    """

    verified: int = 0
    quarantined: int = 0
    stale: int = 0


class _Decided(NamedTuple):
    verified: list[str]
    bad: list[records.Op]
    recorded: Recorded

    @property
    def ops(self) -> list[records.Op]:
        proved: list[records.Op] = [records.FileVerified(self.verified)] if self.verified else []
        return proved + self.bad


def record_verdicts(engine: Engine, verdicts: Sequence[Verdict]) -> Recorded:
    """Commit verdicts, all in one commit. Of two about one file the bad one counts.

    Raises:
        TooLargeError: they are too many for one commit.
        GuardFailed: files were changed all the time by others; once more in a moment.
        TsferryError: the engine takes no commits.
    """
    check_number(verdicts)
    for _ in range(_ATTEMPTS):
        with engine.reading() as state:
            decided = _decide(state, verdicts)
        crash.point("verdicts.decided")
        if decided.ops:
            try:
                engine.commit(decided.ops)
            except RefusedCommitError:  # a file was deleted or hidden meanwhile: look again
                continue
            crash.point("verdicts.committed")
        return decided.recorded
    raise GuardFailed(f"verdicts were overtaken {_ATTEMPTS} times; deliver them again in a moment")


def check_number(verdicts: Sequence[Verdict]) -> None:
    """See that so many can be committed at once.

    Raises:
        TooLargeError: they cannot.
    """
    if len(verdicts) > MOST_VERDICTS:
        raise TooLargeError(f"{len(verdicts)} verdicts, {MOST_VERDICTS} are taken at once")


def _decide(state: State, verdicts: Sequence[Verdict]) -> _Decided:
    """What verdicts are worth now. A physical name has one content for ever; rules see the rest."""
    proved: list[str] = []
    bad: list[records.Op] = []
    stale = quarantined = 0
    for each in one_of_each(verdicts):
        row = state.files.get(each.physical)
        if row is None or row.md5 != each.md5:
            stale += 1
        elif row.visible and each.bad is None:
            proved.append(each.physical)
        elif row.visible and each.bad is not None:
            hold = each.as_sent and not is_merged(row.physical)
            bad += _quarantine(state, row, kept_reason(each.bad), hold=hold)
            quarantined += 1
        elif row.state is FileState.QUARANTINED and each.bad is not None:
            quarantined += 1
        else:
            stale += 1
    return _Decided(proved, bad, Recorded(len(proved), quarantined, stale))


def _quarantine(state: State, row: FileRow, reason: str, *, hold: bool) -> Iterable[records.Op]:
    yield records.FileQuarantined(row.physical, reason)
    if hold:
        known = state.quarantine.get((row.sender, row.path, row.tail))
        yield records.QuarantinePut(
            sender=row.sender,
            path=row.path,
            digest=row.tail,
            size=row.size,
            hold=True,
            reason=reason,
            kept=None if known is None else known.kept,
        )


def is_held(state: State, row: FileRow) -> bool:
    """Whether the content of a quarantined file is on hold: not wanted again from its sender.

    It is after a verdict `as_sent`, and where the file came again and was refused.
    """
    return any(
        each.hold and (each.digest, each.size) == (row.tail, row.size)
        for each in state.quarantine_table.at_path(row.sender, row.path)
    )


def hold_of(state: State, row: FileRow) -> QuarantineRow | None:
    """The entry that a verdict made beside a quarantined file: of the same commit."""
    entry = state.quarantine.get((row.sender, row.path, row.tail))
    made_together = entry is not None and entry.hold and entry.changed == row.changed
    return entry if made_together and row.state is FileState.QUARANTINED else None


def one_of_each(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Of several verdicts on one content one, which is bad if any is."""
    found: dict[tuple[str, str], Verdict] = {}
    for each in verdicts:
        before = found.get((each.physical, each.md5))
        if before is None or before.bad is None:
            found[each.physical, each.md5] = each
    return list(found.values())


def kept_reason(text: str) -> str:
    """As an operator and the sender will read it: never empty, never a page long."""
    text = text.strip() or "found bad by a verification"
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."
