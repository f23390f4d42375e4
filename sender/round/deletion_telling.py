"""What is new in the deletion files of a task's TsFiles, told to the receiver in pages.

What it was told before is not told again, as long as it has that still: it says of which files it
does not, and these are told from their begin, once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from common import crash, wire
from common.names import FilePath
from sender.kept.seen_looks.looks import EdgeLook
from sender.plan.additions import Addition
from sender.plan.task_plan import TaskPlan
from sender.round.file_source import Source
from sender.select.found import LocalDeletions
from sender.send.remote import Remote
from sender.send.sent_bytes.deletion_parts import deletion_pages, deletion_parts

__all__ = ["DeletionTelling"]


class DeletionTelling:
    """Tells the deletion files of one task.

    Attributes:
        told: (path, form) of each file -> bytes of it that the receiver has, and of these how many
            are known to be kept (`EdgeLook.kept_of`).
    """

    def __init__(
        self,
        remote: Remote,
        look: EdgeLook,
        source: Source,
        limits: wire.Limits,
        task: str,
        epoch: str | None,
    ) -> None:
        """Prepare.

        Args:
            remote: the receiver.
            look: that saw the files.
            source: reads them.
            limits: of the receiver's pages.
            task: its id.
            epoch: of it.
        """
        self._remote = remote
        self._look = look
        self._source = source
        self._limits = limits
        self._task = task
        self._epoch = epoch
        self.told: dict[tuple[str, str], tuple[int, int]] = {}

    def tell(self, plan: TaskPlan, additions: Mapping[FilePath, Addition]) -> None:
        """Tell what is new in deletion files; what the receiver has lost comes again from 0.

        Args:
            plan: the task's, as far as it is still to be done.
            additions: all that it began with.

        Raises:
            StoppedError: told to stop.
            TsferryError: the receiver is out of reach, or refuses.
        """
        applied = self._remote.config.deletion_files == "apply"
        limits = self._limits
        files = {
            (file.path.text, file.form): file
            for file in plan.deletion_files
            if self._look.sight(file) is not None
        }
        sent = {path for path, each in additions.items() if not each.resource_only}
        begins = {  # of a file that is sent: it is another one than they were told of
            key: 0 if file.path in sent else self._look.begin(file, applies=applied)
            for key, file in files.items()
        }
        again = {file.path.text for file in plan.deletion_files}
        for _ in range(2):
            parts = [
                part
                for file in plan.deletion_files
                if file.path.text in again
                for part in self._parts(file, begins.get((file.path.text, file.form), 0), applied)
            ]
            again = set()
            for page in deletion_pages(parts, limits.max_page_items, limits.max_page_bytes):
                self._remote.go_on()
                body = wire.DeletionsPage(parts=page)
                answer = self._remote.patiently(lambda body=body: self._deletions(body))  # type: ignore[misc]
                again.update(answer.again)
                for part in page:
                    key = (part.path, part.form)
                    end = part.base - self._behind(*key, begins[key]) + len(part.content)
                    kept = self._look.kept_of(files[key], begins[key], end, applies=applied)
                    self.told[key] = end, kept
            crash.point("task.deletions.sent")
            begins = dict.fromkeys(begins, 0)
            if not again:
                break
        for path, form in list(self.told):
            if path in again:
                del self.told[path, form]

    def _parts(
        self, file: LocalDeletions, begin: int, applied: bool
    ) -> Iterator[wire.DeletionsPart]:
        sight, content = self._look.sight(file), self._source.deletion_file(file)
        if sight is not None and content is not None:
            behind = self._behind(file.path.text, file.form, begin)
            yield from deletion_parts(
                file, sight, content, begin=begin, applied=applied, behind=behind
            )

    def _behind(self, path: str, form: str, begin: int) -> int:
        """Bytes that the receiver has of the path besides what was told of the file as it is."""
        sight = self._look.after.deletions[path][form]
        return sight.there - sight.told if begin and sight.there else 0

    def _deletions(self, body: wire.DeletionsPage) -> wire.DeletionsAnswer:
        return self._remote.client.deletions(self._task, self._epoch, body)
