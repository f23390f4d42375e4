"""The calls about one task, bound to it, with the patience and the ears that go with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from common import wire
from common.errors import StoppedError, TsferryError
from sender.send.calls import Client, UploadState
from sender.send.connection.backoff import Tries
from sender.send.connection.paced_body import Departure

__all__ = ["TaskCalls"]


@dataclass(frozen=True, slots=True)
class TaskCalls:
    """What all that sends files of one task needs.

    Attributes:
        client: the calls.
        task: its id.
        epoch: of the task.
        tries: patience.
        stop: True when the process is to end.
        sent: called with the bytes of each block or batch that was taken in.
    """

    client: Client
    task: str
    epoch: str | None
    tries: Tries
    stop: Callable[[], bool] = lambda: False
    sent: Callable[[int], None] = lambda size: None

    def batch(self, body: bytes) -> wire.BatchAnswer:
        """See `Client.batch`."""
        return self.client.batch(self.task, self.epoch, body)

    def create_upload(self, path: str, size: int) -> UploadState:
        """See `Client.create_upload`."""
        return self.client.create_upload(self.task, self.epoch, path, size)

    def patch_upload(
        self,
        upload: str,
        offset: int,
        block: bytes,
        md5: str | None,
        departure: Departure | None = None,
    ) -> int:
        """See `Client.patch_upload`."""
        return self.client.patch_upload(upload, self.epoch, offset, block, md5, departure)

    def pause(self, what: str, failures: int, error: TsferryError) -> None:
        """Wait before `what` is tried again.

        Raises:
            StoppedError: told to stop.
        """
        seconds = self.tries.backoff.pause(failures, error.retry_after)
        self.tries.tell(what, error, seconds)
        if self.tries.sleep(seconds):
            raise StoppedError("told to stop")
