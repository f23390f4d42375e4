"""Files of the snapshot, opened for sending, and what the receiver is told of them beforehand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from common import wire
from common.digests import md5_of_fd
from common.errors import UnsafePathError
from common.tsfile import Corrupt, read_tail
from common.tsfile.tail_digest import tail_digest
from sender.kept.loaded_list.snapshot import Snapshot, SnapshotFile, still_same
from sender.plan.additions import Addition
from sender.select.found import Span, stat_identity
from sender.send.sent_bytes.proofs import Proofs

__all__ = [
    "OpenFile",
    "Prepared",
    "SmallFile",
    "Unfit",
    "opened",
    "opened_resource",
    "pages",
    "prepare",
    "small_file",
    "small_resource",
    "without_devices",
]


_SMALL = 1 << 20
"""Bytes of a file that is read whole."""


class OpenFile(msgspec.Struct, frozen=True):
    """`sender.send.sent_bytes.upload.Content` of an open file."""

    path: str
    size: int
    fd: int
    same: Callable[[int], bool]

    def read(self, offset: int, length: int) -> bytes:
        """Bytes at an offset; fewer only at the end."""
        out = os.pread(self.fd, length, offset)
        while len(out) < length:  # the kernel may stop short of what it has
            more = os.pread(self.fd, length - len(out), offset + len(out))
            if not more:
                break
            out += more
        return out

    def unchanged(self) -> bool:
        """Whether the file is still the one that was chosen."""
        return self.same(self.fd)


class Prepared(msgspec.Struct, frozen=True):
    """A file that is ready to be offered.

    Attributes:
        addition: why it is sent.
        snap: where it is held.
        entry: what the receiver is told of it.
        span: its data times.
        series: in it.
        points: in it.
        resource_identity: (size, mtime_ns, inode) of its resource as it was read.
    """

    addition: Addition
    snap: SnapshotFile
    entry: wire.PlanEntry
    span: Span | None
    series: int
    points: int
    resource_identity: tuple[int, int, int] | None = None


class Unfit(msgspec.Struct, frozen=True):
    """A file that is not offered, and why.

    Attributes:
        addition: the file.
        reason: in words.
        changed: it is not what was chosen any more; otherwise it is no sound TsFile.
    """

    addition: Addition
    reason: str
    changed: bool


def prepare(
    snapshot: Snapshot,
    snap: SnapshotFile,
    addition: Addition,
    md5: str | None,
    origin: str = "",
    *,
    proofs: Proofs,
) -> Prepared | Unfit:
    """Read the tail of a snapshot file; of a small one all there is, once.

    Args:
        snapshot: that holds it.
        snap: the file.
        addition: why it is sent.
        md5: of the file, where it is known without reading it.
        origin: the edge that it comes from, of a forwarded file.
        proofs: take the tables of small files.
    """
    try:
        fd = snapshot.open(snap)
    except (OSError, UnsafePathError) as error:
        return Unfit(addition, f"cannot be opened: {error}", changed=True)
    try:
        small = addition.file.size <= _SMALL
        source = os.pread(fd, addition.file.size, 0) if small else fd
        tail = read_tail(source)
        digest = tail_digest(source)
        resource, identity = _resource(snapshot, snap)
        same = still_same(fd, snap)
    except (OSError, Corrupt, UnsafePathError) as error:
        return Unfit(addition, f"changed while it was read: {error}", changed=True)
    finally:
        os.close(fd)
    if not same:
        return Unfit(addition, "changed while it was read", changed=True)
    if not tail.complete:
        return Unfit(addition, f"{tail.status}: {tail.reason}", changed=False)
    if small:
        proofs.take(addition.path.text, source, tail)
    entry = wire.PlanEntry(
        path=addition.path.text,
        size=addition.file.size,
        tail=digest,
        md5=md5,
        replaces=addition.replaces,
        retry=addition.retry,
        answered=0 if addition.trouble is None else addition.trouble.commit,
        first_time=tail.first_time,
        last_time=tail.last_time,
        devices=[device.name_in(addition.path.sg) for device in tail.devices],
        resource=resource,
        origin=origin,
    )
    span = None
    if tail.first_time is not None and tail.last_time is not None:
        span = Span(tail.first_time, tail.last_time)
    return Prepared(addition, snap, entry, span, tail.series_count, tail.point_count, identity)


def _resource(
    snapshot: Snapshot, snap: SnapshotFile
) -> tuple[wire.ResourceEntry | None, tuple[int, int, int] | None]:
    if snap.resource_rel is None:
        return None, None
    fd = snapshot.open_resource(snap)
    try:
        identity = stat_identity(os.fstat(fd))
        return wire.ResourceEntry(size=identity[0], md5=md5_of_fd(fd)), identity
    finally:
        os.close(fd)


class SmallFile:
    """A `Content` that is open only while it is read, so that thousands may wait."""

    def __init__(
        self, path: str, size: int, opening: Callable[[], int], same: Callable[[int], bool]
    ) -> None:
        self.path = path
        self.size = size
        self._opening = opening
        self._same = same
        self._was_same = True

    def read(self, offset: int, length: int) -> bytes:
        """Bytes at an offset; none where the file is gone."""
        try:
            fd = self._opening()
        except (OSError, UnsafePathError):
            self._was_same = False
            return b""
        try:
            out = OpenFile(self.path, self.size, fd, self._same).read(offset, length)
            self._was_same = self._same(fd)
        except OSError:
            self._was_same = False
            return b""
        finally:
            os.close(fd)
        return out

    def unchanged(self) -> bool:
        """Whether the file was the one that was chosen when it was read."""
        return self._was_same


@contextmanager
def opened(snapshot: Snapshot, prepared: Prepared) -> Iterator[OpenFile]:
    """The TsFile, for sending in blocks."""
    snap = prepared.snap
    fd = snapshot.open(snap)
    try:
        yield OpenFile(
            prepared.entry.path, prepared.entry.size, fd, lambda each: still_same(each, snap)
        )
    finally:
        os.close(fd)


@contextmanager
def opened_resource(snapshot: Snapshot, prepared: Prepared) -> Iterator[OpenFile]:
    """Its resource, for sending in blocks."""
    assert prepared.entry.resource is not None
    wanted = prepared.resource_identity
    path = prepared.addition.path.resource.text
    fd = snapshot.open_resource(prepared.snap)
    try:
        yield OpenFile(
            path,
            prepared.entry.resource.size,
            fd,
            lambda each: stat_identity(os.fstat(each)) == wanted,
        )
    finally:
        os.close(fd)


def small_file(snapshot: Snapshot, prepared: Prepared) -> SmallFile:
    """The TsFile, for a batch."""
    snap, entry = prepared.snap, prepared.entry
    return SmallFile(
        entry.path, entry.size, lambda: snapshot.open(snap), lambda fd: still_same(fd, snap)
    )


def small_resource(snapshot: Snapshot, prepared: Prepared) -> SmallFile:
    """Its resource, for a batch."""
    assert prepared.entry.resource is not None
    snap, wanted = prepared.snap, prepared.resource_identity
    return SmallFile(
        prepared.addition.path.resource.text,
        prepared.entry.resource.size,
        lambda: snapshot.open_resource(snap),
        lambda fd: stat_identity(os.fstat(fd)) == wanted,
    )


_FRAME = len(wire.encode(wire.PlanPage(entries=[])))


def pages(ready: Iterable[Prepared], limits: wire.Limits) -> Iterator[list[Prepared]]:
    """Pages within the receiver's limits, each as soon as it is full.

    Devices are only a hint that spares bytes: where they alone would fill a page, they stay away.
    """
    page: list[Prepared] = []
    used = _FRAME
    for each in ready:
        size = len(wire.encode(each.entry)) + 1
        if size + _FRAME > limits.max_page_bytes // 2:
            each = without_devices(each)
            size = len(wire.encode(each.entry)) + 1
        if page and (used + size > limits.max_page_bytes or len(page) >= limits.max_page_items):
            yield page
            page, used = [], _FRAME
        page.append(each)
        used += size
    if page:
        yield page


def without_devices(prepared: Prepared) -> Prepared:
    """The same without its devices: thousands of names a file are not kept for a whole task."""
    entry = msgspec.structs.replace(prepared.entry, devices=[])
    return msgspec.structs.replace(prepared, entry=entry)
