"""The schema log of an Apache IoTDB beside the data, and the tags of its series.

It is `mlog.txt` as it stands; or, as lines of such a log, all that the schema directory says in
other forms (`sender.schema.gathered_log`).

What the receiver has applied of it is compared with what is here: the bytes just before the
position, and the tags as they were. From that follows what is to be sent:

* the log has grown: what is behind the position;
* tags were changed in place, which the log does not tell: the whole log once more;
* the log is another, or has shrunk (the database writes a checkpoint and begins anew): the whole.

The whole goes under a new identity. Deletions in it that may have been told before are marked as
such (`SchemaEnd.news`). A last line without its end never happened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

from common.digests import read_blocks, xxh3_128
from common.durable import Tree
from common.text_numbers import whole_number
from common.wire import SchemaKind, SchemaPosition, SchemaStaged
from sender.schema.beside import MLOG, TLOG, opened, schema_files, unread_files
from sender.schema.gathered_log import ChangedError, edge_check, gather
from sender.schema.notes import Shipping
from sender.schema.tag_files import TagFiles, TagsMark

if TYPE_CHECKING:
    from pathlib import Path

    from sender.schema.notes import SchemaNotes

__all__ = ["TextLog", "TextPlan"]

_EDGE = 4096
_PER_SLOT = 32


@dataclass(frozen=True, slots=True)
class TextPlan:
    """What is to be sent of a log.

    Attributes:
        identity: of the log.
        base: where it begins; 0 for the whole.
        end: where the last whole line ends.
        news: deletions from here on have not been told before.
        tags: bytes of the tlog and their digest, as they were before any slot is read.
        reason: why the whole is sent, in words; None where it goes on.
    """

    identity: str
    base: int
    end: int
    news: int
    tags: TagsMark
    reason: str | None = None

    kind = SchemaKind.TEXT

    @property
    def size(self) -> int:
        """Bytes of the log that are to be sent."""
        return self.end - self.base

    @property
    def offset(self) -> int:
        """How far the log is applied then."""
        return self.end

    @property
    def shipping(self) -> Shipping:
        """What is noted before the first block goes."""
        return Shipping(identity=self.identity, base=self.base, tags=self.tags)


class TextLog:
    """The log and its tags, open for the length of a round.

    Attributes:
        end: where its last whole line ends.
        unread: what of the schema directory is not read, in words.
    """

    def __init__(self, mlog: int, end: int, tags: TagFiles, unread: list[str]) -> None:
        self._mlog = mlog
        self._tags = tags
        self._absent = 0
        self.end = end
        self.unread = unread

    @classmethod
    @contextmanager
    def open(
        cls,
        schema_dir: Path,
        notes: SchemaNotes | None = None,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> Iterator[TextLog | None]:
        """The log of a schema directory, None if there is none.

        Args:
            schema_dir: of the database.
            notes: beside which lines are kept that were made of other forms.
            clock_ns: the time.

        Raises:
            UnsafePathError: something else stands in its place.
            ChangedError: it was begun anew while it was read.
            DamagedError: a binary log or a snapshot is damaged; the message says where.
        """
        with ExitStack() as stack:
            tree = stack.enter_context(Tree(schema_dir))
            files = schema_files(tree)
            unread = unread_files(tree)
            tlogs = [TLOG]
            if not files:
                yield None
                return
            if [each.kind for each in files] == ["text"]:
                mlog = tree.open_read(MLOG)
                stack.callback(os.close, mlog)
                end = _last_line_end(mlog)
            else:
                mlog, state = gather(tree, notes, files)
                stack.callback(os.close, mlog)
                end, tlogs = state.size, state.tlogs or tlogs
                unread += state.unread()
            descriptors = [(name, opened(tree, name)) for name in tlogs]
            for _, descriptor in descriptors:
                if descriptor is not None:
                    stack.callback(os.close, descriptor)
            yield cls(mlog, end, TagFiles(descriptors, clock_ns), unread)

    # -- what is to be sent ------------------------------------------------------------------

    def plan(
        self, applied: SchemaPosition | None, notes: SchemaNotes, *, whole: bool
    ) -> TextPlan | None:
        """What is to be sent, None for nothing.

        Args:
            applied: what the receiver says.
            notes: of this sender.
            whole: the operator wants all to be sent again.
        """
        if self.end == 0:
            return None  # a log that has just been begun anew: what was applied stays
        if applied is None:
            return self._whole(None, self._tags.now(notes), self.end, "nothing of it is there yet")
        mark = _Mark.parse(applied.mark)
        if mark is None or not self._is_here(applied.offset, mark):
            reason = "it was replaced, or begun anew"
            return self._whole(applied, self._tags.now(notes), self.end, reason)
        begun = notes.now.shipping
        keep = [mark.tags[1], *([] if begun is None else [begun.tags[1]])]
        now = self._tags.now(notes, keep)
        if whole:
            return self._whole(applied, now, applied.offset, "as the operator wants it")
        same_tags = now if now == mark.tags else self._tags.until(notes, mark.tags)
        if same_tags != mark.tags:
            return self._whole(applied, now, applied.offset, "tags were changed in place")
        if mark.absent and now != mark.tags:
            return self._whole(applied, now, applied.offset, "tags have come that were missing")
        self._absent = mark.absent
        if self.end == applied.offset:
            return None
        return TextPlan(applied.identity, applied.offset, self.end, applied.offset, now)

    def _whole(
        self, applied: SchemaPosition | None, tags: TagsMark, news: int, reason: str
    ) -> TextPlan:
        before = "" if applied is None else f"{applied.identity} {applied.offset}"
        head = xxh3_128(self._read(0, min(_EDGE, self.end))).hex()
        name = xxh3_128(f"{head} {self.end} {before}".encode()).hex()
        return TextPlan(f"text-{name}", 0, self.end, min(news, self.end), tags, reason)

    def goes_on(self, plan: TextPlan, staged: SchemaStaged, notes: SchemaNotes) -> TextPlan | None:
        """The plan that ends what the receiver has of this log already; None: begin anew."""
        begun = notes.now.shipping
        known = begun is not None and (begun.identity, begun.base) == (
            staged.identity,
            staged.base,
        )
        if begun is None or not known or staged.kind is not SchemaKind.TEXT:
            return None
        if staged.base != plan.base or staged.size > plan.size:
            return None
        if plan.base and plan.identity != staged.identity:
            return None
        there = self._digest(self._mlog, plan.base, plan.base + staged.size)
        if there != staged.digest or self._tags.until(notes, begun.tags) != begun.tags:
            return None
        return TextPlan(staged.identity, plan.base, plan.end, plan.news, begun.tags, plan.reason)

    def mark(self, plan: TextPlan) -> str:
        """By what the log is known again, once the plan is carried out."""
        return str(_Mark(edge_check(self._mlog, plan.end), plan.tags, self._absent))

    def _is_here(self, offset: int, mark: _Mark) -> bool:
        return offset <= self.end and edge_check(self._mlog, offset) == mark.check

    # -- the log -----------------------------------------------------------------------------

    def blocks(
        self, plan: TextPlan, begin: int, budget: int
    ) -> Iterator[tuple[int, bytes, dict[int, bytes]]]:
        """Pieces of the log with the slots that they speak of: (bytes before, piece, slots).

        Args:
            plan: what is to be sent.
            begin: bytes of it that are sent already.
            budget: bytes of a piece and its slots, about.

        Raises:
            ChangedError: the log was cut meanwhile.
        """
        at = plan.base + begin
        while at < plan.end:
            window = self._read(at, min(at + budget, plan.end))
            cut = window.rfind(b"\n") + 1 or len(window)
            piece, slots = self._with_slots(window[:cut], budget)
            yield at - plan.base, piece, slots
            at += len(piece)

    def _with_slots(self, window: bytes, budget: int) -> tuple[bytes, dict[int, bytes]]:
        """As many of the lines as fit with their slots."""
        slots: dict[int, bytes] = {}
        at = room = 0
        while at < len(window):
            end = window.find(b"\n", at) + 1 or len(window)
            offset = _tag_offset(window[at:end])
            wanted = offset >= 0 and offset not in slots
            slot = self._tags.slot(offset) if wanted else None
            room += end - at + (0 if slot is None else len(slot) + _PER_SLOT)
            if at and room > budget:
                break
            if slot is not None:
                slots[offset] = slot
            elif wanted:
                self._absent += 1
            at = end
        return window[:at], slots

    def _read(self, begin: int, end: int) -> bytes:
        data = b"".join(read_blocks(self._mlog, start=begin, end=end))
        if len(data) != end - begin:
            raise ChangedError(f"{MLOG} was cut while it was read; the next round looks again")
        return data

    @staticmethod
    def _digest(fd: int, begin: int, end: int) -> str:
        digest = xxhash.xxh3_128()
        for block in read_blocks(fd, start=begin, end=end):
            digest.update(block)
        return digest.hexdigest()


def _last_line_end(descriptor: int) -> int:
    """Where the last whole line ends."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - _EDGE)
        found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _tag_offset(line: bytes) -> int:
    """The offset in the tlog that a line ends with; -1 if it has none."""
    if not line.startswith((b"0,", b"12,")):
        return -1
    digits = line.rstrip(b"\r\n").rpartition(b",")[2]
    return int(digits) if digits.isdigit() and len(digits) < 19 else -1


@dataclass(frozen=True, slots=True)
class _Mark:
    """What the receiver keeps for this sender: a check of the log, and of the tlog.

    Attributes:
        check: of the log.
        tags: bytes of the tlog and their digest.
        absent: tags that the log speaks of and the tlog did not have.
    """

    check: str
    tags: TagsMark
    absent: int

    def __str__(self) -> str:
        return f"text 1 {self.check} {self.absent} {self.tags[0]} {self.tags[1]}"

    @classmethod
    def parse(cls, text: str) -> _Mark | None:
        """The mark, None for that of another log, or another version."""
        words = text.split(" ")
        if len(words) != 6 or words[:2] != ["text", "1"]:
            return None
        absent, size = whole_number(words[3]), whole_number(words[4])
        if absent is None or size is None:
            return None
        return cls(words[2], (size, words[5]), absent)
