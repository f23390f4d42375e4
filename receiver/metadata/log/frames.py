r"""The engine's log: frames that are on the disk whole before anybody is told.

    head     "TSFMLOG\n", version uint32, 0 uint32, first LSN uint64, salt uint64, check uint64
    frame    "TSFm", length uint32, LSN uint64, payload check uint64, head check uint64,
             payload (`length` bytes), the log's mark
    payload  msgpack, [[ts, [operation, ...], tlog offset], ...]: see
    `receiver.metadata.model.records`

The log is cut into segments, each a file of this form (`receiver.metadata.log.segments`). Version 1
was a single file without operations of the schema, version 2 knew no verification; both are read as
they are.

Numbers are little-endian. Checks are xxh3-64 with the log's random salt as seed: a CRC-32 would do
for one frame, but the search for frames behind a damage tries every place, and bytes that an older
log left on the disk must not pass for frames of this one. So the mark, four bytes above 7f, comes
from the salt too. The head of a frame is checked by itself,
so its length is known to be true before anything is read, or allocated, by it. The head of the log
is checked likewise, its version before that.

A frame holds the commits that were written and flushed together; each has an LSN of its own, the
frame names the first, and they count on from frame to frame without a gap.

What a bad frame means. A frame is written only after the one before it was flushed. So a bad frame
with a sound frame (or the sound head of one) anywhere behind it had been flushed, perhaps
acknowledged: damage, and the start is refused. A bad *last* frame is either one that a power cut
kept from being written whole, which nobody was told of, or one that decayed after somebody was.
A cut leaves the file short, or parts unwritten: sectors of zeros, or at the end of the file bytes
that are not ours. It does not leave the mark, the last bytes of the frame, where it belongs, with
no sector of zeros before it, and yet a wrong check. That is taken for decay, and the start is
refused as well: a human decides (`fsck --repair` cuts it). All else is a torn tail and is cut.
Where a decay takes the last frame's mark along, or a whole sector of it, it cannot be told from a
cut; the history check of the protocol (`newest_commit`) is what notices that.
"""

from __future__ import annotations

import os
import secrets
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import xxhash

from common import crash
from common.durable.flushing import meaning
from common.errors import DamagedError, TooLargeError, TsferryError
from receiver.metadata.model.errors import NewerLogError
from receiver.metadata.model.records import Commit, decode_commits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from common.durable import AppendFile, Tree

__all__ = [
    "LOCK_NAME",
    "LOG_NAME",
    "MAX_PAYLOAD",
    "VERSION",
    "LogReader",
    "LogWriter",
    "create_log",
    "encode_frame",
    "encode_log_head",
    "encode_payload",
]

LOG_NAME = "mlog-1.tsf"
LOCK_NAME = "engine.lock"
"""Held by who writes beneath a schema directory."""
"""The first segment."""
VERSION = 4
MAX_PAYLOAD = 1 << 30

_LOG_MAGIC = b"TSFMLOG\n"
_LOG_HEAD = struct.Struct("<8sIIQQ")
_FRAME_MAGIC = b"TSFm"
_FRAME_HEAD = struct.Struct("<4sIQQ")
_CHECK = struct.Struct("<Q")
_MARK_SIZE = 4
_LOG_HEAD_SIZE = _LOG_HEAD.size + _CHECK.size
_FRAME_HEAD_SIZE = _FRAME_HEAD.size + _CHECK.size
_SECTOR = 512
_WINDOW = 1 << 20
# msgpack by hand, so that commits which callers have encoded need not be encoded again.
_ARRAY_32 = struct.Struct(">BI")
_COMMIT_HEAD = struct.Struct(">BBQ")
_TAGS_AT = struct.Struct(">BQ")


# -- writing -------------------------------------------------------------------------------------


def encode_payload(commits: Sequence[tuple[int, bytes] | tuple[int, bytes, int]]) -> bytes:
    """A payload of (ts, operations as `records.encode_ops` made them, offset of their tags)."""
    pieces = [_ARRAY_32.pack(0xDD, len(commits))]
    for ts, ops, *tags_at in commits:
        if tags_at and tags_at[0] >= 0:
            pieces += (_COMMIT_HEAD.pack(0x93, 0xCF, ts), ops, _TAGS_AT.pack(0xCF, tags_at[0]))
        else:
            pieces += (_COMMIT_HEAD.pack(0x92, 0xCF, ts), ops)
    return b"".join(pieces)


def encode_frame(salt: int, lsn: int, payload: bytes, mark: bytes = b"") -> bytes:
    """A frame, ready to be appended; `mark` is the log's, where the caller has it at hand."""
    if len(payload) > MAX_PAYLOAD:
        raise TooLargeError(f"a commit of {len(payload)} bytes; at most {MAX_PAYLOAD} are allowed")
    check = xxhash.xxh3_64_intdigest(payload, seed=salt)
    head = _FRAME_HEAD.pack(_FRAME_MAGIC, len(payload), lsn, check)
    return b"".join((head, _check(head, salt), payload, mark or _mark(salt)))


def encode_log_head(salt: int, first_lsn: int, version: int = VERSION) -> bytes:
    """The head of a log."""
    head = _LOG_HEAD.pack(_LOG_MAGIC, version, 0, first_lsn, salt)
    return head + _check(head, salt)


def create_log(tree: Tree, name: str, first_lsn: int, payload: bytes | None = None) -> int:
    """Make a log in one step; returns its salt.

    Args:
        tree: the schema directory.
        name: of the file.
        first_lsn: of its first commit.
        payload: of its first frame. The log of a new engine has its first commit in it.
    """
    salt = secrets.randbits(64)
    content = encode_log_head(salt, first_lsn)
    if payload is not None:
        content += encode_frame(salt, first_lsn, payload)
    crash.point("mlog.create.before")
    tree.write_atomic(name, content, mode=0o640)
    crash.point("mlog.create.after")
    return salt


def _check(head: bytes, salt: int) -> bytes:
    return _CHECK.pack(xxhash.xxh3_64_intdigest(head, seed=salt))


def _mark(salt: int) -> bytes:
    digest = xxhash.xxh3_64_digest(b"mark", seed=salt)
    return bytes(each | 0x80 for each in digest[:_MARK_SIZE])


class LogWriter:
    """The end of a log that was read to its end.

    Attributes:
        first_lsn: of the segment that is being written.
        next_lsn: of the next commit.
    """

    def __init__(self, file: AppendFile, salt: int, next_lsn: int, *, first_lsn: int = 1) -> None:
        self._file = file
        self._salt = salt
        self._mark = _mark(salt)
        self._stray: tuple[Tree, str] | None = None
        self.first_lsn = first_lsn
        self.next_lsn = next_lsn

    @property
    def size(self) -> int:
        """Bytes of the segment."""
        return self._file.size

    def append(self, payload: bytes, commits: int) -> None:
        """Write the payload of so many commits as one frame and flush it.

        Raises:
            NoSpaceError: as `AppendFile.append`; so are the others.
        """
        self._withdraw()
        self._file.append(encode_frame(self._salt, self.next_lsn, payload, self._mark))
        self.next_lsn += commits

    def rotate(self, tree: Tree, name: str) -> bool:
        """Go on in a new segment; False if nothing is in this one, which then is the new one."""
        if self.first_lsn == self.next_lsn:
            return False
        self._file.settle()
        self._withdraw()
        crash.point("mlog.rotate.before")
        self._stray = (tree, name)  # whatever fails from now on, and as far as it has come
        try:
            salt = create_log(tree, name, self.next_lsn)
            file = tree.append_file(name, settled=True)
            now = file, salt, _mark(salt), self.next_lsn, None
        except crash.SimulatedCrash:
            raise
        except BaseException:
            with suppress(OSError, TsferryError):  # or before the next commit
                self._withdraw()
            raise
        before = self._file
        self._file, self._salt, self._mark, self.first_lsn, self._stray = now
        before.close()
        crash.point("mlog.rotate.after")
        return True

    def _withdraw(self) -> None:
        """Commits go on in the old segment: a new one, begun before them, must not stay."""
        if self._stray is not None:
            tree, name = self._stray
            tree.unlink(name)
            self._stray = None

    def close(self) -> None:
        """Close the file."""
        self._file.close()


# -- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of a frame whose check is right."""

    length: int
    lsn: int
    check: int

    @property
    def size(self) -> int:
        return _FRAME_HEAD_SIZE + self.length + _MARK_SIZE


class LogReader:
    """One pass over a log, from its head to its last sound frame.

    Attributes:
        what: path of the log, for messages.
        version: of its form.
        first_lsn: LSN of its first commit.
        salt: seed of its checks.
        good: where the last sound frame read so far ends.
        next_lsn: LSN of the next commit; while a frame is looked at, that of its first one.
        torn: bytes behind `good` that never were a whole frame; known after `frames` is through.
    """

    def __init__(self, fd: int, what: str) -> None:
        """Read the head of the log open at `fd`; bytes appended from now on are not looked at.

        Raises:
            DamagedError: this is no log, or its head is damaged.
            NewerLogError: a newer version of tsferry wrote it.
        """
        self.what = what
        self._fd = fd
        self._end = os.fstat(fd).st_size
        self.version, self.salt, self.first_lsn = self._read_log_head()
        self.next_lsn = self.first_lsn
        self.good = _LOG_HEAD_SIZE
        self.torn = 0

    def go_to(self, lsn: int, offset: int) -> bool:
        """Begin `frames` at the frame that an LSN had begun at this offset, if it still does."""
        head = self._frame_head(os.pread(self._fd, _FRAME_HEAD_SIZE, offset))
        if head is None or head.lsn != lsn:
            return False
        self.good, self.next_lsn = offset, lsn
        return True

    def go_to_end(self, lsn: int, offset: int) -> bool:
        """Stand where an LSN is to begin, if nothing is behind this offset yet."""
        if self._end != offset:
            return False
        self.good, self.next_lsn = offset, lsn
        return True

    def frames(self) -> Iterator[tuple[int, list[Commit]]]:
        """(offset, commits) of each frame; ends at the end of the log or at a torn tail.

        Raises:
            DamagedError: a frame that was flushed is damaged; it names file and offset.
        """
        for at, commits, _ in self._frames():
            yield at, commits

    def payloads(self) -> Iterator[tuple[int, int, bytes]]:
        """(first LSN, number of commits, payload) of each frame; as `frames` for the rest."""
        for _, commits, payload in self._frames():
            yield self.next_lsn, len(commits), payload

    def _frames(self) -> Iterator[tuple[int, list[Commit], bytes]]:
        with meaning(self.what), os.fdopen(os.dup(self._fd), "rb", buffering=_WINDOW) as stream:
            stream.seek(self.good)
            while self.good < self._end:
                head = self._frame_head(stream.read(_FRAME_HEAD_SIZE))
                if head is None or self.good + head.size > self._end:
                    break
                payload = stream.read(head.length)
                stream.read(_MARK_SIZE)
                if not self._is_sound(head, payload):
                    break
                commits = self._decode(head, payload)
                yield self.good, commits, payload
                self.next_lsn += len(commits)
                self.good += head.size
        with meaning(self.what):
            self._judge_tail()

    def frames_behind_damage(self) -> Iterator[tuple[int, list[Commit]]]:
        """(offset, commits) of the sound frames behind a damage, for a report on what is lost."""
        for found in self._find(_FRAME_MAGIC, self.good + 1):
            head = self._frame_head(os.pread(self._fd, _FRAME_HEAD_SIZE, found))
            if head is None or head.lsn < self.next_lsn or found + head.size > self._end:
                continue
            payload = os.pread(self._fd, head.length, found + _FRAME_HEAD_SIZE)
            if self._is_sound(head, payload):
                yield found, decode_commits(payload)

    def _read_log_head(self) -> tuple[int, int, int]:
        with meaning(self.what):
            raw = os.pread(self._fd, _LOG_HEAD_SIZE, 0)
        if len(raw) < _LOG_HEAD_SIZE or not raw.startswith(_LOG_MAGIC):
            raise self.damage(0, "this is no log of the metadata engine")
        _, version, _, first_lsn, salt = _LOG_HEAD.unpack_from(raw)
        if version > VERSION:
            raise NewerLogError(
                f"{self.what} has version {version}, written by a newer tsferry; "
                f"this one reads versions up to {VERSION}"
            )
        if raw[_LOG_HEAD.size :] != _check(raw[: _LOG_HEAD.size], salt):
            raise self.damage(0, "the head of the log does not match its check")
        return version, salt, first_lsn

    def _frame_head(self, raw: bytes) -> _Head | None:
        if len(raw) < _FRAME_HEAD_SIZE or not raw.startswith(_FRAME_MAGIC):
            return None
        if raw[_FRAME_HEAD.size :] != _check(raw[: _FRAME_HEAD.size], self.salt):
            return None
        _, length, lsn, check = _FRAME_HEAD.unpack_from(raw)
        return _Head(length, lsn, check)

    def _is_sound(self, head: _Head, payload: bytes) -> bool:
        # The mark is not looked at: with the payload proven, nothing hangs on it.
        return xxhash.xxh3_64_intdigest(payload, seed=self.salt) == head.check

    def _decode(self, head: _Head, payload: bytes) -> list[Commit]:
        if head.lsn != self.next_lsn:
            raise self.damage(
                self.good, f"the frame begins with LSN {head.lsn}, expected {self.next_lsn}"
            )
        try:
            return decode_commits(payload)
        except msgspec.MsgspecError as error:
            raise self.damage(self.good, f"a sound frame that cannot be read: {error}") from error

    def damage(self, at: int, why: str) -> DamagedError:
        """The error for damage at offset `at`."""
        return DamagedError(
            f"{self.what} is damaged at offset {at}: {why}; `tsferry-receiver fsck` shows what "
            "can be saved",
            extra={"file": self.what, "offset": at},
        )

    # -- the end --

    def _judge_tail(self) -> None:
        self.torn = self._end - self.good
        if not self.torn:
            return
        head = self._frame_head(os.pread(self._fd, _FRAME_HEAD_SIZE, self.good))
        if head is not None and self.good + head.size > self._end:
            return
        later = self._sound_head_after(self.good)
        if later is not None:
            raise self.damage(
                self.good, f"the frame does not match its check, and one at {later} follows it"
            )
        end = self._written_end() if head is None else self.good + head.size
        if end is None or os.pread(self._fd, _MARK_SIZE, end - _MARK_SIZE) != _mark(self.salt):
            return
        if not self._has_empty_sector(self.good, end):
            raise self.damage(
                self.good,
                "the last frame was written to its end and does not match its check; it may hold "
                "acknowledged commits, so it is not dropped by itself",
            )

    def _sound_head_after(self, at: int) -> int | None:
        for found in self._find(_FRAME_MAGIC, at + 1):
            head = self._frame_head(os.pread(self._fd, _FRAME_HEAD_SIZE, found))
            if head is not None and head.lsn > self.next_lsn:
                return found
        return None

    def _written_end(self) -> int | None:
        found = next(self._find(_mark(self.salt), self.good), None)
        return None if found is None else found + _MARK_SIZE

    def _find(self, needle: bytes, at: int) -> Iterator[int]:
        """Offsets of `needle` from `at` to the end of the log."""
        while at < self._end:
            window = os.pread(self._fd, min(_WINDOW, self._end - at), at)
            found = window.find(needle)
            while found >= 0:
                yield at + found
                found = window.find(needle, found + 1)
            if at + len(window) >= self._end or not window:
                return
            at += len(window) - len(needle) + 1

    def _has_empty_sector(self, begin: int, end: int) -> bool:
        """Whether what lies of some sector between the offsets is all zeros."""
        at = begin
        while at < end:
            size = min(_SECTOR - at % _SECTOR, end - at)
            if not any(os.pread(self._fd, size, at)):
                return True
            at += size
        return False
