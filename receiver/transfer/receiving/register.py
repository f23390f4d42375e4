"""The uploads that are begun and not finished, in memory: by id, by sender, each with its turns.

Turns live in this process and only for the length of a call, so a dropped link leaves none behind.
Whoever finds an upload taken is told *busy* at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from common.errors import BusyError, ForbiddenError, GoneError, NotFoundError
from common.wire import Struct
from receiver.transfer.turns import Turn, Turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.load.loader import LoadJob
    from receiver.principal import Principal
    from receiver.transfer.receiving.partial import PartialUpload, UploadMeta

__all__ = ["Finished", "OpenUpload", "Register", "UploadView"]

_REMEMBERED = 10_000
"""Finished uploads that HEAD still answers for, should the last answer be lost."""


class UploadView(Struct, frozen=True, kw_only=True):
    """Where an upload stands.

    Attributes:
        id: 32 hex digits.
        offset: bytes that are on the disk for good.
        length: bytes that the whole file has.
        expires: when it is dropped if nothing more comes.
        path: of the file; empty once the upload is finished.
        md5: of the whole file, where the upload was made with it.
        task: that it belongs to.
    """

    id: str
    offset: int
    length: int
    expires: float
    path: str = ""
    md5: str | None = None
    task: str | None = None

    @property
    def complete(self) -> bool:
        """Whether every byte is here and verified (and, without a task, loaded)."""
        return self.offset == self.length


class OpenUpload:
    """An upload that is begun and not finished.

    Attributes:
        folder: of its sender.
        partial: its bytes.
        touched: when bytes last came, seconds since the epoch.
        turns: who works on it.
        gone: whether it was finished or dropped while somebody waited.
        job: of a task of one file that is verified, and waits to be loaded.
    """

    def __init__(self, folder: SenderFolder, partial: PartialUpload, touched: float) -> None:
        self.folder = folder
        self.partial = partial
        self.touched = touched
        self.turns = Turns()
        self.gone = False
        self.job: LoadJob | None = None

    @property
    def meta(self) -> UploadMeta:
        """What it is."""
        return self.partial.meta


class Finished:
    """An upload whose file is verified: to whom it belonged, and its length."""

    def __init__(self, sender: str, owner: str, length: int) -> None:
        self.sender = sender
        self.owner = owner
        self.length = length


class Register:
    """All uploads of all senders. All calls are safe from any thread."""

    def __init__(self) -> None:
        self._uploads: dict[str, OpenUpload] = {}
        self._of_sender: dict[str, dict[str, OpenUpload]] = {}
        self._of_path: dict[tuple[str, str], dict[str, OpenUpload]] = {}
        self._finished: OrderedDict[str, Finished] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, upload_id: str) -> bool:
        return upload_id in self._uploads

    def add(self, upload: OpenUpload) -> None:
        """One more."""
        with self._lock:
            self._uploads[upload.meta.id] = upload
            self._of_sender.setdefault(upload.meta.sender, {})[upload.meta.id] = upload
            self._of_path.setdefault(_path(upload), {})[upload.meta.id] = upload

    def all(self, sender: str | None = None) -> list[OpenUpload]:
        """All uploads, of one sender if told so."""
        with self._lock:
            of = self._uploads if sender is None else self._of_sender.get(sender, {})
            return list(of.values())

    def of_path(self, sender: str, path: str) -> list[OpenUpload]:
        """The uploads of a sender for one path."""
        with self._lock:
            of = self._of_path.get((sender, path), {})
            return list(of.values())

    def find(self, who: Principal, upload_id: str) -> OpenUpload:
        """An upload of this principal.

        Raises:
            NotFoundError: there is none by that id.
            ForbiddenError: it belongs to another token.
        """
        upload = self._uploads.get(upload_id)
        if upload is None:
            raise NotFoundError(f"there is no upload {upload_id[:40]!a}; it may have expired")
        _check_owner(who, upload.meta.sender, upload.meta.owner)
        return upload

    def finished(self, who: Principal, upload_id: str) -> Finished | None:
        """An upload of this principal that is finished.

        Raises:
            ForbiddenError: it belongs to another token.
        """
        found = self._finished.get(upload_id)
        if found is not None:
            _check_owner(who, found.sender, found.owner)
        return found

    @contextmanager
    def held(self, upload: OpenUpload) -> Iterator[None]:
        """Keep everybody else from an upload.

        Raises:
            BusyError: somebody else is at it.
            GoneError: it is finished, or was dropped.
        """
        with upload.turns.alone():
            _must_be_there(upload)
            yield

    @contextmanager
    def joined(self, upload: OpenUpload, offset: int, length: int) -> Iterator[Turn]:
        """Be one of the calls that bring blocks, each behind the other.

        Raises:
            BusyError: somebody keeps everybody else from it.
            GoneError: it is finished, or was dropped.
            OffsetError: it stands elsewhere.
        """
        with upload.turns.joined(lambda: upload.partial.offset, offset, length) as turn:
            _must_be_there(upload)
            yield turn

    def finish(self, upload: OpenUpload) -> None:
        """The file is in its place; the caller holds the upload."""
        meta = upload.meta
        self.drop(upload)
        with self._lock:
            self._finished[meta.id] = Finished(meta.sender, meta.owner, meta.length)
            if len(self._finished) > _REMEMBERED:
                self._finished.popitem(last=False)

    def forget(self, upload_id: str) -> None:
        """Do not answer for a finished upload any more."""
        with self._lock:
            self._finished.pop(upload_id, None)

    def drop(self, upload: OpenUpload) -> None:
        """Forget an upload and its bytes; the caller holds it."""
        upload.gone = True
        with self._lock:
            self._uploads.pop(upload.meta.id, None)
            self._of_sender.get(upload.meta.sender, {}).pop(upload.meta.id, None)
            here = self._of_path.get(_path(upload), {})
            here.pop(upload.meta.id, None)
            if not here:
                self._of_path.pop(_path(upload), None)
        upload.partial.drop()

    def drop_if_idle(self, upload: OpenUpload) -> None:
        """Forget an upload that nobody is at, and that does not wait to be loaded."""
        with suppress(BusyError, GoneError), self.held(upload):
            if upload.job is None:
                self.drop(upload)


def _must_be_there(upload: OpenUpload) -> None:
    if upload.gone:
        raise GoneError("this upload is finished or was dropped")


def _path(upload: OpenUpload) -> tuple[str, str]:
    return upload.meta.sender, upload.meta.path


def _check_owner(who: Principal, sender: str, owner: str) -> None:
    who.must_send_for(sender)
    if who.upload_owner(sender) != owner:
        raise ForbiddenError("this upload was made with another token")
