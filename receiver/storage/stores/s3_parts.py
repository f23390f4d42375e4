"""A large object goes in parts, several at once, and only if its key is free.

The parts of an attempt that was cut off lie in the bucket. The next one reads the content from its
begin, for its MD5, and sends what is not there, or is there with another MD5. Nobody sees any of it
before the last call, which the store makes an object of all parts by.
"""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from common import crash
from common.digests import md5
from receiver.storage.stores.object_content import (
    ContentChangedError,
    ObjectContent,
    checked_blocks,
)
from receiver.storage.stores.object_store import Fingerprint, ObjectExistsError, ObjectMissingError
from receiver.storage.stores.s3_errors import s3_errors

__all__ = ["MultipartPut", "in_base64", "part_bytes"]

_PART = 16 << 20
_MOST = 9_000
"""Parts; S3 takes 10,000."""


def in_base64(digest: bytes) -> str:
    """As S3 writes checksums."""
    return base64.b64encode(digest).decode("ascii")


def part_bytes(size: int) -> int:
    """Bytes of each part but the last: whole MiB, and always the same for one size."""
    least = -(-size // _MOST)
    return max(_PART, -(-least >> 20) + (1 << 20) - 1 >> 20 << 20)


@dataclass
class MultipartPut:
    """One object in parts.

    Attributes:
        client: of botocore, for S3.
        bucket: where it goes.
        key: in the bucket.
        url: of the store, for messages.
        sealing: what is said of its encryption.
    """

    client: Any
    bucket: str
    key: str
    url: str
    sealing: Mapping[str, str]
    _ident: str = field(default="", init=False)
    _there: dict[int, _Kept] = field(default_factory=dict, init=False)

    def run(
        self,
        content: ObjectContent,
        about: Mapping[str, str],
        resume: str | None,
        began: Callable[[str], None],
        paced: Callable[[int], None],
        parallel: int,
    ) -> Fingerprint:
        """See `ObjectStore.upload`."""
        if resume is None or not self._goes_on(resume):
            self._begin(about)
            began(self._ident)
        crash.point("storage.parts.begun")
        try:
            parts = self._send(content, paced, parallel)
            self._complete(parts)
        except (ContentChangedError, ObjectExistsError):
            self._abort()
            raise
        crash.point("storage.parts.complete")
        return _fingerprint(content.size, parts)

    def _call(self, name: str, **more: Any) -> Any:
        with s3_errors(self.url, f"{name.replace('_', ' ')} {self.key}"):
            return getattr(self.client, name)(Bucket=self.bucket, Key=self.key, **more)

    def _begin(self, about: Mapping[str, str]) -> None:
        answer = self._call(
            "create_multipart_upload",
            ChecksumAlgorithm="SHA256",
            Metadata=dict(about),
            **self.sealing,
        )
        self._ident = answer["UploadId"]

    def _goes_on(self, ident: str) -> bool:
        there: dict[int, _Kept] = {}
        with s3_errors(self.url, f"list parts {self.key}"):
            try:
                for page in self.client.get_paginator("list_parts").paginate(
                    Bucket=self.bucket, Key=self.key, UploadId=ident
                ):
                    for each in page.get("Parts", ()):
                        there[each["PartNumber"]] = _Kept(
                            each["Size"], each["ETag"], each.get("ChecksumSHA256")
                        )
            except self.client.exceptions.NoSuchUpload:
                return False
        self._ident, self._there = ident, there
        return True

    def _send(
        self, content: ObjectContent, paced: Callable[[int], None], parallel: int
    ) -> list[_Part]:
        """Send what is missing; at most so many parts are held at once."""
        parts: list[_Part] = []
        under_way: deque[Future[_Part]] = deque()
        with ThreadPoolExecutor(parallel, thread_name_prefix="parts") as pool:
            try:
                pieces = checked_blocks(content, block=part_bytes(content.size))
                for number, piece in enumerate(pieces, start=1):
                    if len(under_way) == parallel:
                        parts.append(under_way.popleft().result())
                    under_way.append(pool.submit(self._send_part, number, piece, paced))
                parts += [each.result() for each in under_way]
            except BaseException:
                for each in under_way:
                    each.cancel()
                raise
        return parts

    def _send_part(self, number: int, piece: bytes, paced: Callable[[int], None]) -> _Part:
        """Send a part, if it is not there; digested while others are on their way."""
        part = _Part(number, md5(piece).digest(), hashlib.sha256(piece).digest())
        kept = self._there.get(number)
        if kept is not None and kept.is_of(part, len(piece)):
            return part
        paced(len(piece))
        answer = self._call(
            "upload_part",
            UploadId=self._ident,
            PartNumber=number,
            Body=piece,
            ContentMD5=in_base64(part.md5),
            ChecksumSHA256=in_base64(part.sha256),
        )
        self._there[number] = _Kept(len(piece), answer["ETag"], in_base64(part.sha256))
        crash.point("storage.parts.sent")
        return part

    def _complete(self, parts: list[_Part]) -> None:
        named = [
            {
                "PartNumber": each.number,
                "ETag": self._there[each.number].etag,
                "ChecksumSHA256": in_base64(each.sha256),
            }
            for each in parts
        ]
        self._call(
            "complete_multipart_upload",
            UploadId=self._ident,
            MultipartUpload={"Parts": named},
            IfNoneMatch="*",
        )

    def _abort(self) -> None:
        try:
            self._call("abort_multipart_upload", UploadId=self._ident)
        except ObjectMissingError:
            return


@dataclass(frozen=True)
class _Part:
    number: int
    md5: bytes
    sha256: bytes


@dataclass(frozen=True)
class _Kept:
    """A part as the store has it; its ETag is an MD5 unless the store encrypts."""

    size: int
    etag: str
    sha256: str | None

    def is_of(self, part: _Part, size: int) -> bool:
        if self.size != size:
            return False
        if self.sha256 is not None:
            return self.sha256 == in_base64(part.sha256)
        return self.etag.strip('"') == part.md5.hex()


def _fingerprint(size: int, parts: list[_Part]) -> Fingerprint:
    """As S3 makes the digests of what came in parts."""
    etag = md5(b"".join(each.md5 for each in parts)).hexdigest()
    sha256 = hashlib.sha256(b"".join(each.sha256 for each in parts)).digest()
    count = len(parts)
    return Fingerprint(size, {"etag": f"{etag}-{count}", "sha256": f"{in_base64(sha256)}-{count}"})
