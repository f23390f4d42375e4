"""The frames of the log in etcd: how they stand there, and how they are read.

log/<lsn>              a frame; `lsn`, of its first commit, has twenty digits
parts/<lsn>-<id>/<n>   the payload of a frame that is too large for one request
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from common.errors import DamagedError
from receiver.metadata.etcd.messages import PART_SIZE, Get, KeyValue, Put, prefix_end

if TYPE_CHECKING:
    from receiver.metadata.etcd.gateway import EtcdClient

__all__ = ["Frame", "Frames"]

_PAGE_BYTES = 8 << 20
_FIRST_PAGE, _LONGEST_PAGE = 8, 4096


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """What stands under a key of the log, in msgpack.

    Attributes:
        commits: in the payload.
        id: of the frame.
        digest: of the payload, blake2b, 16 bytes.
        parts: in which the payload stands elsewhere, 0 if it is here.
    """

    commits: int
    id: str
    digest: bytes
    parts: int
    payload: bytes

    @classmethod
    def of(cls, commits: int, ident: str, payload: bytes) -> Frame:
        """A frame that does not hold its payload itself if that is large."""
        parts = -(-len(payload) // PART_SIZE)
        if parts <= 1:
            return cls(commits, ident, _digest(payload), 0, payload)
        return cls(commits, ident, _digest(payload), parts, b"")


class Frames:
    """Keys and content of frames beneath a prefix."""

    def __init__(self, client: EtcdClient, prefix: bytes) -> None:
        self._client = client
        self.log = prefix + b"log/"
        self.parts = prefix + b"parts/"

    # -- keys --------------------------------------------------------------------------------

    def key(self, lsn: int) -> bytes:
        """Of the frame that begins with a commit."""
        return self.log + b"%020d" % lsn

    def parts_of(self, lsn: int, ident: str) -> bytes:
        """Prefix of the parts of a frame."""
        return self.parts + b"%020d-" % lsn + ident.encode() + b"/"

    def first_part(self, lsn: int) -> bytes:
        """Before it in order are the parts of all frames before the one of a commit."""
        return self.parts + b"%020d" % lsn

    def lsn(self, key: KeyValue) -> int:
        """The first commit of a frame.

        Raises:
            DamagedError: this is no key of a frame.
        """
        try:
            return int(key.key[len(self.log) :])
        except ValueError as error:
            raise _damaged(key, "a key that is no LSN") from error

    # -- writing -----------------------------------------------------------------------------

    def put(self, lsn: int, frame: Frame) -> Put:
        """What makes a frame true."""
        return Put(self.key(lsn), _encoder.encode(frame))

    def staged(self, lsn: int, frame: Frame, payload: bytes) -> Iterator[Put]:
        """What has to be there before; nothing for a small frame."""
        prefix = self.parts_of(lsn, frame.id)
        for number in range(frame.parts):
            at = number * PART_SIZE
            yield Put(prefix + b"%06d" % number, payload[at : at + PART_SIZE])

    # -- reading -----------------------------------------------------------------------------

    def oldest(self) -> int | None:
        """First commit of the first frame, None without any."""
        found = self._client.get(Get(self.log, prefix_end(self.log), limit=1, keys_only=True)).keys
        return self.lsn(found[0]) if found else None

    def last_at(self, lsn: int) -> tuple[int, Frame] | None:
        """The last frame that begins at or before a commit, with its first commit."""
        last = Get(self.log, self.key(lsn) + b"\0", limit=1, descending=True)
        found = self._client.get(last).keys
        return (self.lsn(found[0]), self.decode(found[0])) if found else None

    def read(self, first: int, newest: int) -> Iterator[tuple[int, bytes]]:
        """(first commit, payload) of the frame that holds `first`, and of all up to `newest`.

        Raises:
            DamagedError: one is gone, or not what was put.
        """
        if first > newest:
            return
        begin = self.last_at(first)
        if begin is None or begin[0] + begin[1].commits <= first:
            raise self._gone(first, newest)
        expected = begin[0]
        for key in self._pages(self.key(expected), prefix_end(self.log)):
            lsn, frame = self.lsn(key), self.decode(key)
            if lsn != expected:
                raise self._gone(expected, newest)
            yield lsn, self._payload(key, frame)
            expected = lsn + frame.commits
        if expected != newest + 1:
            raise self._gone(expected, newest)

    def _pages(self, at: bytes, end: bytes) -> Iterator[KeyValue]:
        """The keys in [at, end), as many at a time as make a handy answer."""
        limit, more = _FIRST_PAGE, True
        while more:
            page = self._client.get(Get(at, end, limit=limit))
            yield from page.keys
            more = page.more
            if page.keys:
                at = page.keys[-1].key + b"\0"
                limit = _next_limit(page.keys)

    def _payload(self, key: KeyValue, frame: Frame) -> bytes:
        payload = frame.payload
        if frame.parts:
            prefix = self.parts_of(self.lsn(key), frame.id)
            parts = self._pages(prefix, prefix_end(prefix))
            payload = b"".join(each.value for each in parts)
        if _digest(payload) != frame.digest:
            raise _damaged(key, "its content does not match its digest")
        return payload

    def decode(self, key: KeyValue) -> Frame:
        """The frame under a key.

        Raises:
            DamagedError: it is none.
        """
        try:
            frame = _decoder.decode(key.value)
        except msgspec.MsgspecError as error:
            raise _damaged(key, str(error)) from error
        if frame.commits < 1:
            raise _damaged(key, f"a frame of {frame.commits} commits")
        return frame

    def _gone(self, lsn: int, newest: int) -> DamagedError:
        what = self.key(lsn).decode()
        return DamagedError(
            f"{what} in etcd is gone: no frame holds commit {lsn}, the log goes on to {newest}",
            extra={"key": what, "lsn": lsn},
        )


def _next_limit(keys: Sequence[KeyValue]) -> int:
    size = sum(len(key.value) for key in keys) + 1
    return min(_LONGEST_PAGE, max(1, _PAGE_BYTES * len(keys) // size))


def _damaged(key: KeyValue, why: str) -> DamagedError:
    what = key.key.decode(errors="replace")
    return DamagedError(f"{what} in etcd is damaged: {why}", extra={"key": what})


def _digest(payload: bytes) -> bytes:
    return blake2b(payload, digest_size=16).digest()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)
