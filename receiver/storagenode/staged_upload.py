"""An upload at a node, and what there is of it on the disk.

    uploads/<id>.part      the bytes
    uploads/<id>.upload    what it is and which blocks count, see `transfer.receiving.partial`
    uploads/<id>.whole     takes the place of the latter: what it is, and the MD5 that was verified

in one of the directories of the node. What is whole says so in one step; the other lines about it,
should they still be there, count no more.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from common import crash
from common.decoders import from_json
from common.errors import BusyError, NotFoundError
from receiver.transfer.receiving.partial import PartialUpload, UploadMeta
from receiver.transfer.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import ExitStack

    from common.durable import Tree

__all__ = ["UPLOADS", "StagedUpload", "remove_upload", "upload_left"]

UPLOADS: Final = "uploads"
"""Directory of all of them."""


class _Whole(msgspec.Struct, frozen=True):
    """What is kept of a file that is whole."""

    meta: UploadMeta
    md5: str


class StagedUpload:
    """An upload.

    Attributes:
        number: of the directory that it is in.
        partial: its bytes.
        touched: when bytes last came, or went to the master, seconds since the epoch.
        turns: who works on it.
        md5: of the whole, once that is here and verified.
        gone: nobody may use it any more.
    """

    def __init__(self, number: int, partial: PartialUpload, touched: float) -> None:
        self.number = number
        self.partial = partial
        self.touched = touched
        self.turns = Turns()
        self.md5: str | None = None
        self.gone = False

    @property
    def offset(self) -> int:
        """Bytes that count."""
        return self.partial.offset if self.md5 is None else self.partial.meta.length

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep everybody else away.

        Raises:
            BusyError: somebody is there.
            NotFoundError: it was dropped meanwhile.
        """
        with self.turns.alone():
            self.must_be_there()
            yield

    def must_be_there(self) -> None:
        """Raise `NotFoundError` if it is not any more."""
        if self.gone:
            raise NotFoundError("this upload was dropped, or its file is in its place")

    def is_taken(self, stack: ExitStack) -> bool:
        """Keep everybody else away until a stack is left; whether that could be."""
        try:
            stack.enter_context(self.alone())
        except (BusyError, NotFoundError):
            return False
        return True

    def keep(self, tree: Tree, md5: str) -> None:
        """Its bytes are flushed and verified: from here on it is whole."""
        whole = msgspec.json.encode(_Whole(self.partial.meta, md5))
        tree.write_atomic(_whole_name(self.partial.meta.id), whole)
        crash.point("staged.whole")
        tree.unlink(self.partial.log, sync=False)
        self.md5 = md5

    def remove(self, tree: Tree) -> None:
        """Have nothing of it any more."""
        tree.unlink(_whole_name(self.partial.meta.id), sync=False)
        self.partial.drop()


def upload_left(
    tree: Tree, number: int, stem: str, sizes: Mapping[str, int], now: float
) -> StagedUpload | None:
    """The upload that an earlier life left; None where it is none that goes on.

    Args:
        tree: a directory of the node.
        number: of it.
        stem: id of the upload.
        sizes: bytes of all that lies there, by name.
        now: seconds since the epoch.
    """
    if f"{stem}.part" not in sizes:
        return None
    if f"{stem}.whole" in sizes:
        whole = _whole_of(tree, stem)
        if whole is not None and sizes[f"{stem}.part"] == whole.meta.length:
            tree.unlink(f"{UPLOADS}/{stem}.upload", sync=False)
            staged = StagedUpload(number, PartialUpload(tree, UPLOADS, whole.meta), now)
            staged.md5 = whole.md5
            return staged
        return None
    if f"{stem}.upload" not in sizes:
        return None
    partial = PartialUpload.open(tree, UPLOADS, stem)
    return None if partial is None else StagedUpload(number, partial, partial.touched)


def remove_upload(tree: Tree, stem: str) -> None:
    """Remove what is there of an upload that does not go on."""
    for kind in ("whole", "upload", "part"):
        tree.unlink(f"{UPLOADS}/{stem}.{kind}", sync=False)


def _whole_name(stem: str) -> str:
    return f"{UPLOADS}/{stem}.whole"


def _whole_of(tree: Tree, stem: str) -> _Whole | None:
    try:
        whole = from_json(tree.read(_whole_name(stem), limit=1 << 20), _Whole)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return whole if whole.meta.id == stem else None
