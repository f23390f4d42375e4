"""The sender's side of the protocol: one method a call (docs/protocol.md)."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlencode, urlsplit

import msgspec

import common
from common import wire, zstd
from common.digests import xxh3_128
from common.errors import GoneError, NotFoundError, ProtocolError, UnreachableError
from common.network.bandwidth import Bandwidth
from common.text_numbers import whole_number
from sender.send.connection.body_compression import BodyCompression
from sender.send.connection.json_calls import JsonCalls
from sender.send.connection.paced_body import Departure
from sender.send.connection.transport import Endpoint, HttpReply, short

__all__ = ["Client", "UploadState", "base64_md5"]

_UPLOAD_ID = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
_UPLOAD_PATH = re.compile(r"/files/([A-Za-z0-9_-]{1,128})\Z")
_TUS = {"Tus-Resumable": wire.TUS_VERSION}


class UploadState(msgspec.Struct, frozen=True):
    """What the receiver says of an upload: its id, and the offset that is on its disk."""

    id: str
    offset: int


class Client(JsonCalls):
    """Calls of one sender to one receiver; threads may share it."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        bandwidth: Bandwidth,
        compression: BodyCompression | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(endpoint, bandwidth=bandwidth, clock=clock)
        self._compression = compression or BodyCompression("off", bandwidth)

    # -- rounds ----------------------------------------------------------------------------

    def check(self, request: wire.CheckRequest) -> wire.CheckAnswer:
        """Who the receiver is, and where it stands with this sender."""
        answer = self.json("POST", "/check", wire.CheckAnswer, request)
        if answer.protocol != wire.PROTOCOL:
            raise ProtocolError(
                f"{self.endpoint.url}: speaks protocol {answer.protocol} (version "
                f"{answer.version}), this sender {wire.PROTOCOL} ({common.__version__})"
            )
        self._compression.offered(answer.limits.encodings)
        return answer

    def start_task(self, task: str, request: wire.StartRequest) -> wire.TaskAnswer:
        """Start a task, or resume it."""
        return self._task(task, self.json("PUT", f"/tasks/{task}", wire.TaskAnswer, request))

    def task(self, task: str, wait: float = 0.0) -> wire.TaskAnswer:
        """State and outcome of a task; the receiver may take `wait` seconds to answer."""
        query = urlencode({"wait": f"{wait:.3f}"})
        return self._task(
            task, self.json("GET", f"/tasks/{task}?{query}", wire.TaskAnswer, longer=wait)
        )

    def plan(self, task: str, epoch: str | None, page: wire.PlanPage) -> wire.PlanAnswer:
        """What to do with each file of a page; the answer is in the order of the page."""
        answer = self.json("POST", f"/tasks/{task}/plan", wire.PlanAnswer, page, epoch=epoch)
        asked = [entry.path for entry in page.entries]
        if [decision.path for decision in answer.decisions] != asked:
            raise ProtocolError(f"{self.endpoint.url}: plan answers other paths than were asked")
        return answer

    def deleted(self, task: str, epoch: str | None, page: wire.DeletedPage) -> None:
        """Name loaded paths that are gone or replaced."""
        self.send("POST", f"/tasks/{task}/deleted", body=wire.encode(page), epoch=epoch)

    def deletions(
        self, task: str, epoch: str | None, page: wire.DeletionsPage
    ) -> wire.DeletionsAnswer:
        """Tell what is new in deletion files."""
        path = f"/tasks/{task}/deletions"
        return self.json("POST", path, wire.DeletionsAnswer, page, epoch=epoch)

    def schema_block(self, task: str, epoch: str | None, body: bytes) -> wire.SchemaAnswer:
        """Send a block of the schema log (`common.formats.schemawire`)."""
        reply = self.send(
            "PATCH",
            f"/tasks/{task}/schema",
            body=body,
            epoch=epoch,
            headers={"Content-Type": wire.SCHEMA_TYPE},
        )
        return self.decoded(reply, wire.SchemaAnswer)

    def batch(self, task: str, epoch: str | None, body: bytes) -> wire.BatchAnswer:
        """Send many small files in one body."""
        reply = self._send_bytes(
            "POST",
            f"/tasks/{task}/batch",
            body,
            epoch=epoch,
            headers={"Content-Type": wire.BATCH_TYPE},
        )
        return self.decoded(reply, wire.BatchAnswer)

    def manifest(self, task: str, epoch: str | None, page: wire.ManifestPage) -> None:
        """Tell a part of a long manifest, before the end."""
        self.send("POST", f"/tasks/{task}/manifest", body=wire.encode(page), epoch=epoch)

    def pull(
        self, task: str, epoch: str | None, request: wire.PullRequest, wait: float = 0.0
    ) -> wire.PullAnswer:
        """Have the receiver read a file from a storage node; it may take `wait` seconds."""
        path = f"/tasks/{task}/pull?{urlencode({'wait': f'{wait:.3f}'})}"
        return self.json("POST", path, wire.PullAnswer, request, epoch=epoch, longer=wait)

    def end_task(self, task: str, epoch: str | None, request: wire.EndRequest) -> wire.TaskAnswer:
        """Everything is sent: load it."""
        answer = self.json("POST", f"/tasks/{task}/end", wire.TaskAnswer, request, epoch=epoch)
        return self._task(task, answer)

    def heartbeat(self, beat: wire.Heartbeat) -> wire.HeartbeatAnswer:
        """Say that this sender lives, and what it has left to do."""
        return self.json("POST", "/heartbeat", wire.HeartbeatAnswer, beat)

    def listed(self, request: wire.ListedRequest) -> wire.ListedAnswer:
        """Whether both sides list the same."""
        return self.json("POST", "/listed", wire.ListedAnswer, request)

    def ended(self, page: wire.ListedPage) -> wire.EndedAnswer:
        """Which listed files the receiver let go by itself."""
        return self.json("POST", "/listed/ended", wire.EndedAnswer, page)

    def lost(self, page: wire.LostPage) -> wire.LostAnswer:
        """Tell of files that are here no more, and that the receiver may not know."""
        return self.json("POST", "/lost", wire.LostAnswer, page)

    def settled(
        self, after: int, limit: int = 1000, *, of: str | None = None
    ) -> Iterator[wire.SettledAnswer]:
        """What need not be remembered any more since a commit, in pages.

        Args:
            after: the commit.
            limit: files of a page.
            of: the engine that has to answer; None for any.

        Raises:
            UnreachableError: another one does.
        """
        cursor: str | None = None
        while True:
            query = {"after": str(after), "limit": str(limit)}
            query |= {} if cursor is None else {"cursor": cursor}
            page = self.json("GET", f"/settled?{urlencode(query)}", wire.SettledAnswer)
            self._see(page.engine, of)
            yield page
            if page.next is None:
                return
            if page.next == cursor or not page.files:
                raise ProtocolError(f"{self.endpoint.url}/settled: the pages do not end")
            cursor = page.next

    def inventory(
        self, limit: int = 1000, *, of: str | None = None
    ) -> Iterator[wire.InventoryEntry]:
        """Everything that the receiver has of this sender, page by page.

        Args:
            limit: files of a page.
            of: the engine that has to answer; None for any.

        Raises:
            UnreachableError: another one does.
        """
        for page in self.pages("/inventory", wire.InventoryAnswer, limit):
            self._see(page.engine, of)
            yield from page.entries

    def _see(self, engine: str, wanted: str | None) -> None:
        """What one receiver answers is not to be taken for the word of another at its address."""
        if wanted not in (None, engine):
            raise UnreachableError(
                f"{self.endpoint.url}: engine {short(engine)} answers, and {wanted} did before"
            )

    def inventory_looked_at(
        self, limit: int = 1000, *, after: str | None = None
    ) -> Iterator[wire.InventoryAnswer]:
        """The same in pages; the receiver looks at the bytes of each file on its disk (`stands`).

        Args:
            limit: files of a page.
            after: only paths behind this text.

        Raises:
            ProtocolError: it does not, since it is of an older version.
        """
        pages = self.pages("/inventory", wire.InventoryAnswer, limit, {"look": "true"}, after=after)
        for page in pages:
            if not page.looked:
                raise ProtocolError(
                    f"{self.endpoint.url} does not say whether the bytes of its files lie on its "
                    "disk, as it is of an older version: nothing can be called safe"
                )
            yield page

    # -- uploads ---------------------------------------------------------------------------

    def create_upload(
        self, task: str | None, epoch: str | None, path: str, size: int
    ) -> UploadState:
        """Announce a file; returns where its bytes go."""
        metadata = {"path": path, "size": str(size)}
        metadata |= {} if task is None else {"task": task}
        reply = self.send(
            "POST",
            "/files",
            epoch=epoch,
            headers=_TUS | {"Upload-Length": str(size), "Upload-Metadata": _metadata(metadata)},
        )
        # Only the id counts: the token must not go where another host of a Location points.
        place = _upload_place(reply.headers.get("Location", ""))
        if reply.status != 201 or place is None:
            raise ProtocolError(f"{reply.where}: answered {reply.status} without a usable Location")
        return UploadState(place[1], self._number(reply, "Upload-Offset", absent=0))

    def head_upload(self, upload: str, size: int) -> UploadState:
        """How much of an upload is on the receiver's disk.

        Raises:
            ProtocolError: the answer cannot be about this file (another length, an offset beyond).
        """
        reply = self.send("HEAD", f"/files/{_checked_id(upload)}", headers=_TUS)
        offset = self._number(reply, "Upload-Offset")
        length = self._number(reply, "Upload-Length", absent=size)
        if length != size or offset > size:
            raise ProtocolError(
                f"{reply.where}: says {offset} of {length} bytes, the file has {size}"
            )
        return UploadState(upload, offset)

    def patch_upload(
        self,
        upload: str,
        epoch: str | None,
        offset: int,
        block: bytes,
        repr_md5: str | None = None,
        departure: Departure | None = None,
    ) -> int:
        """Send one block with its checksum; returns the offset that is on the receiver's disk.

        Args:
            upload: its id.
            epoch: of the task it belongs to.
            offset: where the block begins.
            block: the bytes.
            repr_md5: MD5 of the whole file, where it is known (hex).
            departure: hears how far the block has gone.
        """
        checksum = base64.b64encode(xxh3_128(block)).decode()
        headers = _TUS | {
            "Content-Type": wire.OFFSET_TYPE,
            "Upload-Offset": str(offset),
            "Upload-Checksum": f"xxh3_128 {checksum}",
        }
        if repr_md5 is not None:
            headers["Repr-Digest"] = f"md5=:{base64_md5(repr_md5)}:"
        path = f"/files/{_checked_id(upload)}"
        # The answer to one that goes ahead comes behind those to the blocks before it.
        longer = 0.0 if departure is None else self.endpoint.read_timeout
        reply = self._send_bytes(
            "PATCH", path, block, epoch=epoch, headers=headers, longer=longer, departure=departure
        )
        return self._number(reply, "Upload-Offset")

    def drop_upload(self, upload: str) -> None:
        """Give up an upload; one that is gone already is fine."""
        try:
            self.send("DELETE", f"/files/{_checked_id(upload)}", headers=_TUS)
        except (NotFoundError, GoneError):
            return

    def _number(self, reply: HttpReply, header: str, absent: int | None = None) -> int:
        text = reply.headers.get(header, "" if absent is None else str(absent))
        number = whole_number(text)
        if number is None:
            raise ProtocolError(f"{reply.where}: {header} is {short(text)}, expected a number")
        return number

    def _task(self, task: str, answer: wire.TaskAnswer) -> wire.TaskAnswer:
        if answer.task != task:
            raise ProtocolError(f"{self.endpoint.url}: answers for task {short(answer.task)}")
        return answer

    def _send_bytes(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        epoch: str | None,
        headers: Mapping[str, str],
        longer: float = 0.0,
        departure: Departure | None = None,
    ) -> HttpReply:
        """Send bytes of files, compressed where that pays and the other end understands it."""
        small = self._compression.compressed(body)
        if small is not None:
            coding = {"Content-Encoding": zstd.ZSTD, wire.SIZE_HEADER: str(len(body))}
            try:
                return self.send(
                    method,
                    path,
                    body=small,
                    epoch=epoch,
                    headers={**headers, **coding},
                    longer=longer,
                    departure=departure,
                )
            except ProtocolError as error:
                if not self._compression.not_understood(error):
                    raise
        return self.send(
            method,
            path,
            body=body,
            epoch=epoch,
            headers=headers,
            longer=longer,
            departure=departure,
        )


def base64_md5(hexadecimal: str) -> str:
    """An MD5 in hex as `Repr-Digest` has it."""
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


def _upload_place(location: str) -> re.Match[str] | None:
    try:
        return _UPLOAD_PATH.search(urlsplit(location).path)
    except ValueError:  # such as http://[
        return None


def _metadata(values: Mapping[str, str]) -> str:
    return ",".join(
        f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in values.items()
    )


def _checked_id(upload: str) -> str:
    if not _UPLOAD_ID.match(upload):
        raise ProtocolError(f"the receiver named an upload {short(upload)}")
    return upload
