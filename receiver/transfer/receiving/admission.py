"""Whether an upload may be begun, and as what."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from common.digests import is_md5
from common.errors import BusyError, ConflictError, NameRefusedError, ProtocolError
from common.names import FilePath, is_task_id
from receiver.transfer.receiving.partial import UploadMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from receiver.config import LimitsConfig
    from receiver.load.folder.current_task import Planned
    from receiver.load.folder.sender_folder import SenderFolder
    from receiver.principal import Principal
    from receiver.transfer.intake import Intake
    from receiver.transfer.receiving.register import Register

__all__ = ["Admission"]


class Admission:
    """Judges new uploads, and makes room for them where earlier tasks have left something."""

    def __init__(
        self,
        limits: LimitsConfig,
        register: Register,
        intake: Intake,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._limits = limits
        self._register = register
        self._intake = intake
        self._clock = clock

    def read(
        self,
        who: Principal,
        folder: SenderFolder,
        length: int,
        metadata: Mapping[str, str],
        newest: int,
    ) -> UploadMeta:
        """What the upload is, from its length, its metadata and the newest commit.

        Raises:
            NameRefusedError: the path is none that is taken here.
            ProtocolError: something else is not as it should be.
            TooLargeError: the file is larger than is taken here.
            ConflictError: the plan said no.
        """
        if "path" not in metadata:
            raise ProtocolError("Upload-Metadata has no path")
        path = FilePath.parse(metadata["path"])
        self._intake.check_size(path, length)
        size = metadata.get("size")
        if size is not None and size != str(length):
            raise ProtocolError(f"{path}: size and Upload-Length differ")
        md5 = metadata.get("md5")
        if md5 is not None and not is_md5(md5):
            raise ProtocolError(f"{path}: {md5[:40]!a} is no MD5 in hex")
        task = metadata.get("task")
        if task is not None and not is_task_id(task):
            raise ProtocolError(f"{task[:40]!a} is no task id")
        planned = _planned(folder, path, length) if task is not None else None
        return UploadMeta(
            id=secrets.token_hex(16),
            sender=folder.uuid,
            owner=who.upload_owner(folder.uuid),
            path=path.text,
            length=length,
            created=self._clock(),
            task=task,
            md5=md5,
            tail=planned.tail if planned is not None and not path.is_resource else None,
            commit=newest if planned is None else planned.commit,
        )

    def admit(self, folder: SenderFolder, meta: UploadMeta) -> None:
        """Let one more upload begin; the caller holds the folder's lock.

        Raises:
            GoneError: its task is not open.
            BusyError: too many uploads are open.
            NoSpaceError: there is no room for it now.
        """
        if meta.task is not None:
            self._intake.open_task(folder, meta.task)
            self._drop_stale(folder, meta)
        elif FilePath.parse(meta.path).is_resource:
            raise NameRefusedError(f"{meta.path}: a resource comes in a task, with its TsFile")
        most = self._limits.max_open_uploads
        count, partial_bytes = self.numbers(folder.uuid)
        wanted = folder.staged.bytes + partial_bytes + meta.length
        if count >= most or wanted > self._limits.max_unloaded_bytes:
            self._make_room(folder)
            count, partial_bytes = self.numbers(folder.uuid)
        if count >= most:
            raise BusyError(
                f"{count} uploads of this sender are open, limits.max_open_uploads is {most}",
                retry_after=60,
            )
        self._intake.check_room(folder, meta.length, partial_bytes)

    def numbers(self, sender: str | None = None) -> tuple[int, int]:
        """How many uploads of a sender (or of all) are begun, and the bytes they have."""
        every = self._register.all(sender)
        return len(every), sum(each.partial.offset for each in every)

    def _drop_stale(self, folder: SenderFolder, meta: UploadMeta) -> None:
        """An upload of other content for the same path has no future."""
        for each in self._register.of_path(folder.uuid, meta.path):
            if each.meta.owner == meta.owner and each.meta.task is not None:
                self._register.drop_if_idle(each)

    def _make_room(self, folder: SenderFolder) -> None:
        """Let go what earlier tasks have left and the present one has not planned."""
        current = folder.task
        planned = current.planned if current is not None else {}
        for each in self._register.all(folder.uuid):
            is_current = current is not None and each.meta.task == current.id
            if each.meta.task is not None and not is_current and each.meta.path not in planned:
                self._register.drop_if_idle(each)
        if current is None or not current.loading:
            wanted = {text for path in planned for text in (path, f"{path}.resource")}
            listed = set() if current is None else current.received
            folder.staged.discard(
                each.path
                for each in folder.staged.all()
                if each.single is None and each.path not in wanted and each.path not in listed
            )


def _planned(folder: SenderFolder, path: FilePath, length: int) -> Planned | None:
    """The plan's entry for a file, which it has to fit."""
    current = folder.task
    planned = current.planned.get(path.tsfile.text) if current is not None else None
    if planned is None:
        return None
    if planned.refused is not None:
        raise ConflictError(f"{path}: the plan said {planned.refused}: {planned.reason}")
    if not path.is_resource and planned.size != length:
        raise ProtocolError(f"{path}: {length} bytes, {planned.size} were planned")
    return planned
