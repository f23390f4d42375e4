"""A file of this machine comes into the folder of whoever it is loaded for, and is verified."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from common.digests import md5 as new_md5
from common.digests import md5_of_fd
from common.durable import Tree
from common.errors import DigestError, TsferryError
from receiver.operator.centre.centre_files import opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from common.names import FilePath
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.operator.centre.centre_files import CentreFile
    from receiver.transfer.intake import Intake, VerifiedBytes

__all__ = ["copy_in", "drop_parts", "link_in"]

_BLOCK = 1 << 20


def copy_in(
    intake: Intake, folder: SenderFolder, file: CentreFile, path: FilePath, expected: str
) -> VerifiedBytes:
    """A copy under a temporary name, flushed and verified.

    Args:
        intake: verifies it.
        folder: that it is copied into.
        file: where it lies.
        path: that it gets.
        expected: MD5 that it had when it was looked at.

    Raises:
        DigestError: it is not what was read before.
    """
    digest = new_md5()
    with _part(folder) as part, opened(file.source) as fd, folder.tree.create(part) as copy:
        while block := os.read(fd, _BLOCK):
            digest.update(block)
            copy.write(block)
        copy.sync()
        found = digest.hexdigest()
        if found != expected:
            raise DigestError(
                f"{file.source}: MD5 {found} as it was copied, {expected} when it was looked "
                "at: somebody writes to it; load a copy that stands still"
            )
        return intake.verify(copy.fileno(), path, part, found, expected=(expected,), planned=None)


def link_in(
    intake: Intake, folder: SenderFolder, file: CentreFile, path: FilePath, expected: str
) -> VerifiedBytes:
    """The file itself under a temporary name, flushed and verified; whoever asks ends its old name.

    Args:
        intake: verifies it.
        folder: that it comes into, on its file system.
        file: where it lies.
        path: that it gets.
        expected: MD5 that it had when it was looked at.

    Raises:
        DigestError: it is not what was read before.
    """
    with _part(folder) as part:
        with Tree(file.source.parent) as there:
            folder.tree.link(file.source.name, part, of=there)
        folder.tree.sync_file(part)  # who wrote it may not have
        fd = folder.tree.open_read(part)
        try:
            found = md5_of_fd(fd)
            return intake.verify(fd, path, part, found, expected=(expected,), planned=None)
        finally:
            os.close(fd)


def drop_parts(folder: SenderFolder, parts: Iterable[str]) -> None:
    """Remove temporary names as far as that can be done now; the next start removes the others.

    Args:
        folder: that they are in.
        parts: their paths.
    """
    for part in parts:
        with suppress(OSError, TsferryError):
            folder.tree.unlink(part)


@contextmanager
def _part(folder: SenderFolder) -> Iterator[str]:
    """A temporary name, that nothing has any more where what it was for did not come about."""
    part = f"{folder.uploads}/{secrets.token_hex(16)}.part"
    try:
        yield part
    except Exception:
        drop_parts(folder, [part])
        raise
