"""How much a sender may delete within a window of time, and what is held until an operator decides.

Deletes are ends that a mirror follows, and points that records of deletion files hide. What no
proof explains is counted for each sender and storage group, against what was listed there when the
window began; time is that of commits. What would be too much is held: told, committed as a list
with a digest, not applied. It stays so across windows, until an operator lets that list through.

What counts as explained is only likely, and that is enough for counting. Nothing is deleted, hidden
or proved by it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common.names import storage_group_of
from common.wire import HeldRecords
from receiver.load.deciding.told_deletions.delete_window import DeleteWindow
from receiver.load.deciding.told_deletions.hidden_files import (
    HidingRecords,
    RecordsPart,
    applied_parts,
)
from receiver.load.deciding.told_deletions.known_deletions import KeptRecords
from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState, author_of
from receiver.metadata.state.tables.file_tables.file_index import GroupKey
from receiver.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from receiver.config import DeletesConfig
    from receiver.metadata.state.deletion_rows import DeletionsRow, HeldDeletesRow
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["DeleteGuard", "ProductSpans", "held_records_of"]

_Partition = tuple[str, str, int]
_VETO = "the token that it came with forbids deletes"
_OUTSIDE = "it hides points outside of the token's scope"
_DOUBTFUL = (
    "an earlier version noted it as not to be applied, and did not note whether an operator had "
    "dropped it"
)
_DIGITS = 32
_MOST_TOLD = 100


class ProductSpans(NamedTuple):
    """A product of a compaction.

    Attributes:
        partition: that it lies in.
        points: that it has.
        ranges: (device, first, last) of its devices.
    """

    partition: _Partition
    points: int
    ranges: Sequence[tuple[str, int, int]]


class _Fresh(NamedTuple):
    """Records that are to be applied from the commit at hand on.

    Attributes:
        part: them.
        salt: of the digest of a list that holds them.
    """

    part: RecordsPart
    salt: str


def _spans(products: Iterable[ProductSpans]) -> dict[str, tuple[int, int]]:
    spans: dict[str, tuple[int, int]] = {}
    for each in products:
        for device, first, last in each.ranges:
            begin, end = spans.get(device, (first, last))
            spans[device] = (min(begin, first), max(end, last))
    return spans


def _is_within(
    ranges: Iterable[tuple[str, int, int]], spans: Mapping[str, tuple[int, int]]
) -> bool:
    return all(
        device in spans and spans[device][0] <= first and last <= spans[device][1]
        for device, first, last in ranges
    )


class DeleteGuard:
    """The guard of one commit of a sender.

    Attributes:
        ops: what is to be committed of it.
        guards: on what it was decided by.
        held: files that are not to be deleted now, by physical path, and why.
        kept: files that may leave the sender's list, and stay here.
        may_delete: whether the sender's token lets it delete.
    """

    def __init__(
        self,
        state: State,
        sender: str,
        look: int,
        limits: DeletesConfig,
        *,
        may_delete: bool,
        scope: Scope | None = None,
    ) -> None:
        """Begin with what is committed.

        Args:
            state: committed.
            sender: whose deletes.
            look: that tells them.
            limits: of the configuration.
            may_delete: whether the sender's token lets it delete.
            scope: devices that it covers, None for all.
        """
        self._state = state
        self._scope = scope or Scope(())
        self._sender = sender
        self._look = look
        self._limits = limits
        self._window = DeleteWindow(state, sender, limits)
        self._settled: set[str] = set()
        self._hiding: dict[str, HidingRecords] = {}
        self.may_delete = may_delete
        self.ops: list[records.Op] = []
        self.guards: list[Guard] = []
        self.held: dict[str, str] = {}
        self.kept: set[str] = set()

    # -- ends --------------------------------------------------------------------------------

    def judge_ends(
        self,
        ends: Sequence[FileRow],
        products: Sequence[ProductSpans],
        loaded_groups: Iterable[str],
    ) -> None:
        """Judge what is to be deleted because it ended; `held` and `kept` say what is not.

        Args:
            ends: files that end in this commit.
            products: of compactions, that it loads.
            loaded_groups: storage groups of which it loads a file.
        """
        groups: dict[str, list[FileRow]] = defaultdict(list)
        for row in ends:
            groups[row.parsed.sg].append(row)
        arriving = set(loaded_groups)
        explained = self._explained(ends, products)
        for group, rows in groups.items():
            puzzling = [row for row in rows if row.physical not in explained]
            if not self.may_delete:
                self.kept |= {row.physical for row in rows}
            self._judge_group(group, puzzling, rows, arriving=group in arriving)

    def _judge_group(
        self, group: str, puzzling: list[FileRow], ends: list[FileRow], *, arriving: bool
    ) -> None:
        let, left = self._by_verdict(group, puzzling)
        before = next((row for row in self._lists(group) if row.verdict is None), None)
        listed = set() if before is None else set(before.files)
        waiting = [row for row in left if row.physical in listed]  # whatever window it is now
        fresh = [row for row in left if row.physical not in listed]
        told = len(let) + len(waiting)
        # Files that had ended before are listed no more: all that is there counts.
        visible = None if all(row.held for row in ends) else self._window.there(group, held=False)
        going = {
            row.physical
            for row in ends
            if row.visible and row.sender == self._sender and (row.held or visible is not None)
        }
        reason: str | None = _VETO
        if self.may_delete or not fresh:
            reason = self._window.too_much(
                group, len(fresh), told, going=len(going), arriving=arriving, visible=visible
            )
        if reason is None:
            self._window.add(group, len(let) + len(fresh))
            if waiting and before is not None:
                self._hold_ends(group, waiting, before.reason, before)
        else:
            self._window.add(group, len(let))
            self._hold_ends(group, left, reason, before)

    def _by_verdict(
        self, group: str, puzzling: list[FileRow]
    ) -> tuple[list[FileRow], list[FileRow]]:
        """What an operator lets through of what is told, and what nobody has decided about.

        A verdict is for one look that tells files of its list: what is back at the sender by then,
        and is deleted later, is another delete.
        """
        told = {row.physical: row for row in puzzling}
        let: list[FileRow] = []
        for row in self._lists(group):
            if row.verdict is None:
                continue
            mine = [told.pop(each) for each in row.files if each in told]
            if row.used is not None and (row.used != self._look or not self._look):
                told.update((each.physical, each) for each in mine)
                self._settle(row, "done")
            elif mine:
                if row.verdict == "allow":
                    let += mine
                    self.kept -= {each.physical for each in mine}
                else:
                    self.kept |= {each.physical for each in mine}
                self._settle(row, "use" if self._has_more(row, mine) else "done")
        return let, list(told.values())

    def _has_more(self, row: HeldDeletesRow, told: list[FileRow]) -> bool:
        rest = set(row.files) - {each.physical for each in told}
        found = (self._state.files.get(each) for each in rest)
        return any(each is not None and each.held for each in found)

    def _hold_ends(
        self, group: str, rows: list[FileRow], reason: str, before: HeldDeletesRow | None
    ) -> None:
        files = {row.physical for row in rows}
        if before is not None:
            same_look = bool(self._look) and before.look == self._look
            files |= {each for each in before.files if same_look or self._waits_retired(each)}
        digest = self._hold(group, files, reason, before=before)
        for row in rows:
            self.held[row.physical] = _word(reason, digest)

    def _waits_retired(self, physical: str) -> bool:
        """Whether a file is off its sender's list, so that it is not told once more."""
        row = self._state.files.get(physical)
        return row is not None and row.state is FileState.RETIRED

    def _explained(self, ends: Sequence[FileRow], products: Sequence[ProductSpans]) -> set[str]:
        """Files that products of their partition span, or of which nothing was to be seen.

        Products that have too few points for all that they span explain none of it. Only for
        counting: nothing is ever deleted or proved by this.
        """
        hidden = self._hiding_of(self._sender)
        explained = {row.physical for row in ends if hidden.hides(row)}
        for partition in {each.partition for each in products}:
            here = [each for each in products if each.partition == partition]
            spans = _spans(here)
            spanned = [
                row
                for row in ends
                if row.parsed.group == partition
                and row.physical not in explained
                and _is_within(row.devices.ranges(), spans)
            ]
            kept = 1 - self._limits.max_fraction
            if sum(each.points for each in here) >= kept * sum(row.points for row in spanned):
                explained |= {row.physical for row in spanned}
        return explained

    # -- records -------------------------------------------------------------------------------

    def judge_records(
        self,
        noted: Sequence[records.DeletionsNoted],
        ended: Iterable[str],
        kept: Sequence[KeptRecords] = (),
        inherited: Sequence[records.DeletionsNoted | records.KeptRecordsApplied] = (),
    ) -> tuple[list[records.DeletionsNoted], list[KeptRecords]]:
        """Records as they are to be committed: those that hide too much are held.

        Args:
            noted: what the commit is to note.
            ended: physical paths of files that it deletes.
            kept: what was noted before, and is to be applied.
            inherited: both, as of those whom the sender took over from.
        """
        gone = set(ended)
        theirs = self._theirs(inherited)
        groups: dict[str, list[_Fresh]] = defaultdict(list)
        for op in noted:
            if op.applied:
                part = (op.content, op.floor, author_of(op.sender, op.author))
                groups[storage_group_of(op.path)].append(_fresh(op, op.base, *part))
        doubtful: set[str] = set()
        for each in kept:
            group = storage_group_of(each.op.path)
            for base, content, segment in each.parts():
                part = (content, segment.floor, each.row.author)
                groups[group].append(_fresh(each.op, base, *part))
            if not each.certain:
                doubtful.add(group)
        digests: dict[str, str] = {}
        for group, fresh in groups.items():
            digest = self._judge_records(group, fresh, gone, theirs, doubtful=group in doubtful)
            if digest:
                digests[group] = digest
        applied = []
        for each in kept:
            digest = digests.get(storage_group_of(each.op.path), "")
            if digest or each.certain:
                settled = msgspec.structs.replace(each.op, held=digest)
                applied.append(each._replace(op=settled))
        return [self._as_held(op, digests) for op in noted], applied

    def _theirs(
        self, inherited: Sequence[records.DeletionsNoted | records.KeptRecordsApplied]
    ) -> dict[str, list[RecordsPart]]:
        """What is to hide points of each predecessor's files."""
        found: dict[str, list[RecordsPart]] = defaultdict(list)
        for op in inherited:
            if isinstance(op, records.DeletionsNoted):
                part = (op.content, op.floor, author_of(op.sender, op.author))
                if op.applied:
                    found[op.sender].append(_fresh(op, op.base, *part).part)
                continue
            for row in self._noted_by(op):
                for base, content, segment in KeptRecords(op, row).parts():
                    part = (content, segment.floor, row.author)
                    found[op.sender].append(_fresh(op, base, *part).part)
        return found

    def _noted_by(self, op: records.KeptRecordsApplied) -> list[DeletionsRow]:
        table = self._state.deletion_table
        rows = table.unloaded(op.sender, op.path, op.heir)
        if op.physical is not None:
            rows = table.of_file(op.physical)
        return [row for row in rows if row.form == op.form]

    @staticmethod
    def _as_held(op: records.DeletionsNoted, digests: Mapping[str, str]) -> records.DeletionsNoted:
        digest = digests.get(storage_group_of(op.path)) if op.applied else None
        return op if digest is None else msgspec.structs.replace(op, applied=False, held=digest)

    def _judge_records(
        self,
        group: str,
        told: list[_Fresh],
        gone: set[str],
        theirs: Mapping[str, list[RecordsPart]],
        *,
        doubtful: bool,
    ) -> str:
        visible: list[FileRow] = []
        touched: list[FileRow] = []
        hidden: list[FileRow] = []
        for sender, fresh in ((self._sender, [each.part for each in told]), *theirs.items()):
            rows = [row for row in self._visible(group, sender) if row.physical not in gone]
            new = HidingRecords(self._state, fresh)
            concerned = [row for row in rows if new.concerns(row)]
            visible += rows
            touched += concerned
            if not concerned:
                continue
            known = applied_parts(self._state.deletion_table.of_sender(sender))
            old, both = self._hiding_of(sender), HidingRecords(self._state, [*known, *fresh])
            hidden += [row for row in concerned if both.hides(row) and not old.hides(row)]
        if not touched:
            return ""
        reason: str | None
        outside = [row for row in touched if self._scope.first_outside(row.devices) is not None]
        if outside and self.may_delete:
            hidden, reason = outside, _OUTSIDE
        elif self.may_delete and doubtful:
            hidden, reason = touched, _DOUBTFUL
        elif self.may_delete:
            reason = self._window.too_much(
                group, len(hidden), 0, going=len(hidden), visible=len(visible)
            )
            if reason is None:
                self._window.add(group, len(hidden))
                return ""
        else:
            hidden, reason = touched, _VETO
        salt = [each.salt for each in told]
        contents = [each.part.content for each in told]
        files = {row.physical for row in hidden}
        return self._hold(group, files, reason, salt=salt, contents=contents)

    def _hiding_of(self, sender: str) -> HidingRecords:
        """What is applied of a sender's deletion files as it is committed."""
        if sender not in self._hiding:
            known = applied_parts(self._state.deletion_table.of_sender(sender))
            self._hiding[sender] = HidingRecords(self._state, known)
        return self._hiding[sender]

    # -- what is there ---------------------------------------------------------------------------

    def _visible(self, group: str, sender: str | None = None) -> list[FileRow]:
        table = self._state.file_table
        return [
            row
            for directory in table.directories()
            if directory.split("/", 2)[1] == group
            for row in table.group(GroupKey.of(directory))
            if row.sender == (sender or self._sender)
        ]

    # -- what is committed -----------------------------------------------------------------------

    def finish(self) -> None:
        """Add what was counted to `ops`."""
        ops, guards = self._window.counted()
        self.ops += ops
        self.guards += guards

    def _lists(self, group: str) -> list[HeldDeletesRow]:
        found = self._state.held_deletes.of(self._sender, group)
        return [row for row in found if not row.records]

    def _settle(self, row: HeldDeletesRow, verdict: records.DeletesVerdict) -> None:
        self.guards.append(Guard("held_deletes", row.digest, row.changed))
        if verdict == "done":
            self._settled.add(row.digest)
        if verdict == "done" or row.used is None:
            self.ops.append(records.DeletesSettled(row.digest, verdict, self._look))

    def _hold(
        self,
        group: str,
        files: set[str],
        reason: str,
        *,
        before: HeldDeletesRow | None = None,
        salt: Sequence[str] = (),
        contents: Sequence[bytes] = (),
    ) -> str:
        names = sorted(files)
        text = "\n".join(["records" if salt else "ends", self._sender, group, *names, *salt])
        digest = hashlib.sha256(text.encode() + b"".join(contents)).hexdigest()[:_DIGITS]
        if before is not None:
            self.guards.append(Guard("held_deletes", before.digest, before.changed))
            if before.digest == digest and before.look == self._look:
                return digest
        self.guards.append(
            Guard("held_deletes", digest, self._state.changed("held_deletes", digest))
        )
        known = self._state.held_deletes.rows.get(digest)
        if known is not None and known.verdict is not None and digest not in self._settled:
            self.ops.append(records.DeletesSettled(digest, "done"))
        self.ops.append(
            records.DeletesHeld(
                digest=digest,
                sender=self._sender,
                group=group,
                files=names,
                records=bool(salt),
                reason=reason,
                look=self._look,
                replaces="" if before is None else before.digest,
            )
        )
        return digest


def _fresh(
    op: records.DeletionsNoted | records.KeptRecordsApplied,
    base: int,
    content: bytes,
    floor: int,
    author: str,
) -> _Fresh:
    part = RecordsPart(storage_group_of(op.path), op.physical, op.form, content, floor, author)
    return _Fresh(part, f"{op.path}\n{op.form}\n{base}\n")


def held_records_of(state: State, sender: str) -> list[HeldRecords]:
    """Lists of records of a sender that wait, the oldest first; as many as an answer has.

    Its ends are in the outcomes of its tasks: it tells them in each round, and records only once.
    """
    rows = (row for row in state.held_deletes.waiting() if row.sender == sender and row.records)
    return [
        HeldRecords(group=row.group, files=len(row.files), reason=_word(row.reason, row.digest))
        for row in islice(rows, _MOST_TOLD)
    ]


def _word(reason: str, digest: str) -> str:
    return (
        f"held at the receiver: {reason}; tsferry-receiver deletes allow {digest} lets it through"
    )
