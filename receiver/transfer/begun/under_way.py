"""What senders have begun to send, and since when: what was deleted since then concerns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receiver.load.folder.sender_folder import Folders, SenderFolder
    from receiver.transfer.receiving.uploads import Uploads

__all__ = ["is_under_way_since_before"]


def is_under_way_since_before(commit: int, folders: Folders, uploads: Uploads) -> bool:
    """Whether anything began to come before a commit, and is not loaded yet.

    A sender that was cut off goes on with its task whenever it is back.

    Args:
        commit: that deleted something.
        folders: of the senders.
        uploads: that are begun.
    """
    begun = [each.meta.commit for each in uploads.begun()]
    for folder in folders.all():
        with folder.lock:
            begun += _begun_in(folder)
    return any(0 < each < commit for each in begun)


def _begun_in(folder: SenderFolder) -> Iterator[int]:
    yield from (each.commit for each in folder.staged.all())
    if folder.task is not None:
        yield folder.task.record.since
        yield from (each.commit for each in folder.task.planned.values())
