"""A client that uploads by blocks and holds the receiver to every offset that it ever answered."""

from __future__ import annotations

import base64
import hashlib
import random
import threading
from dataclasses import dataclass
from typing import Any

import requests
import xxhash

from tests.support.tsfile_bytes import build
from tests.support.workload import WEEK, Written

TIMEOUT = 20.0
UUID = "f" * 32
_LATER = frozenset({409, 429, 503, 507})
"""Answers of a server that comes up, goes down or has lost its disk: ask again."""


@dataclass
class Upload:
    """An upload under way.

    Attributes:
        answered: the largest offset that was ever answered, by whatever call.
        at: where to go on; None after a break: ask.
        asked_all: whether the last byte was sent, so that the upload may be over.
    """

    path: str
    content: bytes
    written: Written
    url: str | None = None
    answered: int = 0
    at: int | None = 0
    asked_all: bool = False


class TusProbe:
    """Uploads one file after the other, some of them at the same time.

    Attributes:
        files: path -> what is loaded, once that was answered.
        ever: (path, MD5) of everything that it ever began to send.
        broken: promises that the receiver did not keep.
        resumed: how often an upload went on after a break, with something to lose.
    """

    def __init__(self, url: str, seed: int, *, size: int = 300_000) -> None:
        self.files: dict[str, Written] = {}
        self.ever: set[tuple[str, str]] = set()
        self.ended: set[tuple[str, str]] = set()
        self.broken: list[str] = []
        self.resumed = 0
        self._url = url
        self._size = size
        self._rng = random.Random(seed)
        self._open: list[Upload] = []
        self._number = 0
        self._session = requests.Session()
        self._session.trust_env = False

    def run(self, stop: threading.Event) -> None:
        """Upload until told to stop, through whatever happens to the receiver."""
        while not stop.wait(0.03):
            try:
                self.step()
            except requests.RequestException:
                for each in self._open:
                    each.at = None
                stop.wait(0.1)

    def finish(self) -> None:
        """Bring all uploads to their end; the receiver is up."""
        for upload in list(self._open):
            for _ in range(1000):
                if upload not in self._open:
                    break
                self._go_on(upload)
            else:
                self.broken.append(f"{upload.path}: the upload does not come to its end")

    def step(self) -> None:
        """One call, or two."""
        if len(self._open) < 3 and self._rng.random() < 0.3:
            self._open.append(self._new())
        if self._open:
            self._go_on(self._rng.choice(self._open))

    def _new(self) -> Upload:
        self._number += 1
        name = f"{1_700_000_000_000 + self._number}-{self._number}-0-0.tsfile"
        path = f"sequence/root.probe/0/2900/{name}"
        begin = 2900 * WEEK + self._number * 1000
        size = self._rng.randrange(2_000, self._size)
        content = build({"root.probe.d": {"s": [(begin, self._number)]}}, pad_to=size)
        digest = hashlib.md5(content).hexdigest()
        self.ever.add((path, digest))
        return Upload(path, content, Written(len(content), digest, None, {}))

    def _go_on(self, upload: Upload) -> None:
        if upload.url is None:
            self._create(upload)
        elif upload.at is None or self._rng.random() < 0.1:
            self._ask(upload)
        else:
            self._send(upload)

    def _call(self, method: str, url: str, headers: dict[str, str], body: bytes = b"") -> Any:
        given = {"Tus-Resumable": "1.0.0", "Tsferry-Sender": UUID, **headers}
        return self._session.request(method, url, headers=given, data=body, timeout=TIMEOUT)

    def _create(self, upload: Upload) -> None:
        path, digest = (
            base64.b64encode(each.encode()).decode() for each in (upload.path, upload.written.md5)
        )
        answer = self._call("POST", f"{self._url}/sync/v1/files", {
            "Upload-Length": str(len(upload.content)),
            "Upload-Metadata": f"path {path},md5 {digest}",
        })  # fmt: skip
        if answer.status_code == 201:
            upload.url = self._url + answer.headers["Location"]
            upload.answered, upload.at, upload.asked_all = 0, 0, False
        elif answer.status_code not in _LATER:
            self._break(upload, f"POST: {answer.status_code} {answer.text[:300]}")

    def _ask(self, upload: Upload) -> None:
        assert upload.url is not None
        answer = self._call("HEAD", upload.url, {})
        if answer.status_code in (404, 410) and upload.asked_all:
            upload.url = None  # it may be loaded, with the answer lost: once more from the start
        elif answer.status_code == 200:
            self._note(upload, int(answer.headers["Upload-Offset"]), "HEAD")
        elif answer.status_code not in _LATER:
            self._break(upload, f"HEAD: {answer.status_code}, {upload.answered} were answered")

    def _note(self, upload: Upload, offset: int, call: str) -> None:
        if offset < upload.answered:
            self._break(upload, f"{call}: offset {offset}, {upload.answered} were answered before")
            return
        self.resumed += upload.at is None and offset > 0
        upload.answered = upload.at = offset

    def _send(self, upload: Upload) -> None:
        assert upload.at is not None
        assert upload.url is not None
        block = upload.content[upload.at : upload.at + self._rng.randrange(4_000, 80_000)]
        # Once sent, the last byte may be there, whatever was answered.
        upload.asked_all |= upload.at + len(block) == len(upload.content)
        check = base64.b64encode(xxhash.xxh3_128_digest(block)).decode()
        headers = {
            "Content-Type": "application/offset+octet-stream",
            "Upload-Offset": str(upload.at),
        }
        if self._rng.random() < 0.7:
            headers["Upload-Checksum"] = f"xxh3_128 {check}"
        upload.at = None  # until it is answered
        answer = self._call("PATCH", upload.url, headers, block)
        if answer.status_code == 204:
            upload.at = int(headers["Upload-Offset"])
            self._note(upload, int(answer.headers["Upload-Offset"]), "PATCH")
            if upload.at == len(upload.content):
                self.files[upload.path] = upload.written
                self._open.remove(upload)
        elif answer.status_code not in _LATER | {404, 410}:
            self._break(upload, f"PATCH: {answer.status_code} {answer.text[:300]}")

    def _break(self, upload: Upload, what: str) -> None:
        self.broken.append(f"upload {upload.url} of {upload.path}: {what}")
        if upload in self._open:
            self._open.remove(upload)
