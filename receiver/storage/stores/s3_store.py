"""S3 and its compatibles: ``s3://bucket/prefix``.

Two clients, with one set of credentials, which botocore finds where everybody keeps them
(environment, profile, web identity, instance role). botocore can put an object only if its key is
free in parts too, go on with parts of an earlier attempt, ask for the checksums of what is kept,
and tells exactly why something failed. obstore lets other threads run while it works, and costs a
fraction: it reads, and it puts what goes as one, once; what it does not manage, botocore does.

The digests of an object are its ETag, which is made of MD5s unless the store encrypts by keys of a
key service, and, where the store knows checksums, the SHA-256 that AWS calls *composite*: of the
SHA-256s of the parts, with their number.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import botocore.session
from botocore.config import Config
from obstore import get_range, head, put
from obstore import list as list_objects
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError
from obstore.store import S3Store as QuickStore

from common.digests import md5
from receiver.storage.stores.object_content import ObjectContent, checked_blocks
from receiver.storage.stores.object_store import (
    Fingerprint,
    ObjectExistsError,
    ObjectMissingError,
    StoredObject,
    StoreRefusedError,
    Unfinished,
)
from receiver.storage.stores.s3_errors import quick_errors, s3_errors
from receiver.storage.stores.s3_parts import MultipartPut, in_base64

if TYPE_CHECKING:
    from obstore.store import S3Credential

__all__ = ["S3Place", "S3Store"]

logging.getLogger("botocore").setLevel(logging.WARNING)  # it tells where credentials were found

_CONNECT, _READ = 10.0, 60.0
_PLAIN = "/ !#$&'*()+,:;<=>?@[]^`{|}"
"""What stays as it is in what is said of an object, beside letters, digits and ``-._~``."""
_IS_PLAIN = re.compile(f"[A-Za-z0-9_.~{re.escape(_PLAIN)}-]*").fullmatch
_MOST_SAID = 1500
_KINDS = {"Get": "get", "Head": "head", "List": "list", "Delete": "delete", "Abort": "delete"}
"""What a store asks a price for, by the first word of the operation; all else puts something."""
_FEW, _LISTED = 8, 1000
"""Objects of a folder that are listed and not asked for each; entries of one answer."""
ONE_PUT = 16 << 20
"""Bytes up to which an object goes as one."""


@dataclass(frozen=True)
class S3Place:
    """Where the objects are, and how the store is spoken to.

    Attributes:
        bucket: which has to be there.
        prefix: of all keys, without slashes at its ends; may be empty.
        endpoint: of a compatible store; None for AWS.
        region: None for what the environment or the profile says.
        profile: of the credentials' file; None for the usual order.
        path_style: the bucket is in the path, not in the host's name.
        parallel: parts of one object on their way at once.
        encryption: that the store is asked for, ``AES256`` or ``aws:kms``; None for the bucket's.
        kms_key: of the key service, by its id or ARN; None for the bucket's.
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    path_style: bool = False
    parallel: int = 4
    encryption: str | None = None
    kms_key: str | None = None

    @property
    def sealing(self) -> dict[str, str]:
        """What a request to put something says of its encryption."""
        said = {"ServerSideEncryption": self.encryption, "SSEKMSKeyId": self.kms_key}
        return {name: text for name, text in said.items() if text}

    @property
    def url(self) -> str:
        """As it is configured."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def full(self, key: str) -> str:
        """The key in the bucket."""
        return f"{self.prefix}/{key}" if self.prefix else key

    def below(self, full: str) -> str:
        """The key below the prefix."""
        return full[len(self.prefix) + 1 :] if self.prefix else full


class S3Store:
    """Objects below a prefix of a bucket; any thread may call."""

    knows_digests = True

    def __init__(self, place: S3Place) -> None:
        self.url = place.url
        self.encryption = place.encryption
        # By keys of a key service no ETag is an MD5: lists, and the quick ways, tell of nothing.
        self._has_md5s = self.tells_many = place.encryption in (None, "AES256")
        self._place = place
        self._large = threading.Lock()
        self._counting = threading.Lock()
        self._requests: Counter[str] = Counter()
        self.requests: Mapping[str, int] = self._requests
        session = botocore.session.Session(profile=place.profile)
        style = "path" if place.path_style else "auto"
        config = Config(
            connect_timeout=_CONNECT,
            read_timeout=_READ,
            retries={"mode": "standard", "max_attempts": 3},
            max_pool_connections=max(10, 4 * place.parallel),
            s3={"addressing_style": style},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with s3_errors(self.url, "open"):
            self._client: Any = session.create_client(
                "s3", region_name=place.region, endpoint_url=place.endpoint, config=config
            )
        self._client.meta.events.register("before-send.s3", self._count)
        options: dict[str, Any] = {"endpoint": place.endpoint} if place.endpoint else {}
        options.update(
            prefix=place.prefix or None,
            region=self._client.meta.region_name or "us-east-1",
            virtual_hosted_style_request=not place.path_style,
            credential_provider=_Credentials(session),
            client_options={
                "allow_http": (place.endpoint or "").startswith("http:"),
                "connect_timeout": f"{_CONNECT:.0f}s",
                "timeout": f"{_READ:.0f}s",
            },
        )
        self._reads = QuickStore(place.bucket, **options)
        if place.encryption:
            options["server_side_encryption"] = place.encryption
        self._once = QuickStore(
            place.bucket, checksum_algorithm="sha256", retry_config={"max_retries": 0}, **options
        )

    def put(self, key: str, data: bytes) -> Fingerprint:
        """See `ObjectStore.put`."""
        return self._put(key, data, md5(data).digest(), {})

    def upload(
        self,
        key: str,
        content: ObjectContent,
        about: Mapping[str, str],
        *,
        resume: str | None = None,
        began: Callable[[str], None] = lambda _: None,
        paced: Callable[[int], None] = lambda _: None,
    ) -> Fingerprint:
        """See `ObjectStore.upload`; parts that have come stay in the bucket if it fails."""
        about = _in_ascii(about)
        if content.size <= ONE_PUT:
            data = b"".join(checked_blocks(content, paced, block=ONE_PUT))
            return self._put(key, data, bytes.fromhex(content.md5), about)
        place = self._place
        parts = MultipartPut(self._client, place.bucket, place.full(key), self.url, place.sealing)
        with self._large:  # its parts are in memory
            return parts.run(content, about, resume, began, paced, self._place.parallel)

    def head(self, key: str) -> StoredObject:
        """See `ObjectStore.head`."""
        with s3_errors(self.url, f"head {key}"):
            found = self._client.head_object(
                Bucket=self._place.bucket, Key=self._place.full(key), ChecksumMode="ENABLED"
            )
        digests = {}
        encryption = found.get("ServerSideEncryption", "")
        if "kms" not in encryption and "SSECustomerAlgorithm" not in found:
            digests["etag"] = found["ETag"].strip('"')
        if "ChecksumSHA256" in found:
            digests["sha256"] = found["ChecksumSHA256"]
        return StoredObject(
            key=key,
            size=found["ContentLength"],
            modified=found["LastModified"].timestamp(),
            digests=digests,
            about={name: unquote(text) for name, text in found.get("Metadata", {}).items()},
            encryption=encryption,
        )

    def agrees(self, key: str, expected: Fingerprint) -> bool | None:
        """See `ObjectStore.agrees`; asks the quick way first, which knows the ETag alone."""
        if self._has_md5s:
            self._add("head")
            with contextlib.suppress(BaseError, OSError):
                found = head(self._once, key)
                etag = (found["e_tag"] or "").strip('"')
                if (found["size"], etag) == (expected.size, expected.digests.get("etag")):
                    return True
        return self.head(key).agrees(expected)

    def agreeing(self, expected: Mapping[str, Fingerprint]) -> set[str]:
        """See `ObjectStore.agreeing`; a list says size and ETag of each object.

        Of a folder with many others in between no more is read than asking for each would cost.
        """
        folders: dict[str, list[str]] = {}
        for key in expected:
            folders.setdefault(key.rpartition("/")[0], []).append(key)
        found: set[str] = set()
        for folder, keys in folders.items():
            if len(keys) >= _FEW:
                with contextlib.suppress(BaseError, OSError):
                    found.update(self._listed(folder, keys, expected))
        return found

    def _listed(
        self, folder: str, keys: Sequence[str], expected: Mapping[str, Fingerprint]
    ) -> Iterator[str]:
        keys = sorted(keys, key=str.encode)
        last, left = keys[-1].encode(), _LISTED * (1 + len(keys) // _FEW)
        pages = list_objects(self._once, folder, offset=keys[0][:-1], chunk_size=_LISTED)
        for page in pages:
            self._add("list")
            for each in page:
                known = expected.get(each["path"])
                etag = (each["e_tag"] or "").strip('"')
                if known is not None and (each["size"], etag) == (
                    known.size,
                    known.digests.get("etag"),
                ):
                    yield each["path"]
            left -= len(page)
            if left <= 0 or not page or page[-1]["path"].encode() >= last:
                return

    def read(self, key: str, offset: int, length: int) -> bytes:
        """See `ObjectStore.read`."""
        if not length:
            return b""
        with quick_errors(self.url, f"read {key}"):
            self._add("get")
            try:
                return bytes(get_range(self._reads, key, start=offset, length=length))
            except GenericError as error:
                if "416" in str(error) or "range" in str(error).lower():
                    return b""
                raise

    def objects(self, prefix: str, *, after: str = "") -> Iterator[StoredObject]:
        """See `ObjectStore.objects`."""
        place = self._place
        begin = {"StartAfter": place.full(after)} if after else {}
        with s3_errors(self.url, f"list {prefix}"):
            for page in self._client.get_paginator("list_objects_v2").paginate(
                Bucket=place.bucket, Prefix=place.full(prefix), **begin
            ):
                for each in page.get("Contents", ()):
                    yield StoredObject(
                        key=place.below(each["Key"]),
                        size=each["Size"],
                        modified=each["LastModified"].timestamp(),
                    )

    def remove(self, key: str) -> None:
        """See `ObjectStore.remove`; in a bucket with versions, earlier ones stay by its rules."""
        with s3_errors(self.url, f"remove {key}"):
            self._client.delete_object(Bucket=self._place.bucket, Key=self._place.full(key))

    def unfinished(self, prefix: str) -> Iterator[Unfinished]:
        """See `ObjectStore.unfinished`."""
        place = self._place
        with s3_errors(self.url, f"list attempts at {prefix}"):
            for page in self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=place.bucket, Prefix=place.full(prefix)
            ):
                for each in page.get("Uploads", ()):
                    yield Unfinished(
                        key=place.below(each["Key"]),
                        ident=each["UploadId"],
                        begun=each["Initiated"].timestamp(),
                    )

    def abandon(self, attempt: Unfinished) -> None:
        """See `ObjectStore.abandon`."""
        with contextlib.suppress(ObjectMissingError), s3_errors(self.url, f"abandon {attempt.key}"):
            self._client.abort_multipart_upload(
                Bucket=self._place.bucket,
                Key=self._place.full(attempt.key),
                UploadId=attempt.ident,
            )

    def close(self) -> None:
        """See `ObjectStore.close`."""
        self._client.close()

    def _is_put_quickly(
        self, key: str, data: bytes, digest: bytes, about: Mapping[str, str]
    ) -> bool:
        """Try it the quick way; whether the store took just these bytes.

        Raises:
            ObjectExistsError: the key is taken.
        """
        self._add("put")
        try:
            done = put(
                self._once, key, data, attributes=dict(about), use_multipart=False, mode="create"
            )
        except AlreadyExistsError as error:
            raise ObjectExistsError(f"{self.url}: {key} is there") from error
        except (BaseError, OSError):
            return False
        return (done["e_tag"] or "").strip('"') == digest.hex()

    def _count(self, event_name: str, **_: Any) -> None:
        """Hear of a request, as botocore sends it."""
        operation = event_name.rpartition(".")[2]
        self._add(next((_KINDS[each] for each in _KINDS if operation.startswith(each)), "put"))

    def _add(self, kind: str) -> None:
        with self._counting:
            self._requests[kind] += 1

    def _put(self, key: str, data: bytes, digest: bytes, about: Mapping[str, str]) -> Fingerprint:
        if data and self._has_md5s and self._is_put_quickly(key, data, digest, about):
            return Fingerprint(len(data), {"etag": digest.hex()})
        sha256 = in_base64(hashlib.sha256(data).digest())
        with s3_errors(self.url, f"put {key}"):
            self._client.put_object(
                Bucket=self._place.bucket,
                Key=self._place.full(key),
                Body=data,
                ContentMD5=in_base64(digest),
                ChecksumSHA256=sha256,
                Metadata=dict(about),
                IfNoneMatch="*",
                **self._place.sealing,
            )
        return Fingerprint(len(data), {"etag": digest.hex(), "sha256": sha256})


def _in_ascii(about: Mapping[str, str]) -> dict[str, str]:
    """As S3 takes it: in headers, and no more than 2,048 bytes; what is too long is left out."""
    said = {
        name: text if _IS_PLAIN(text) else quote(text, safe=_PLAIN) for name, text in about.items()
    }
    return {name: text for name, text in said.items() if len(text) <= _MOST_SAID}


class _Credentials:
    """What obstore asks for credentials: those of botocore, which renews them in time."""

    def __init__(self, session: botocore.session.Session) -> None:
        self._session = session

    def __call__(self) -> S3Credential:
        found = self._session.get_credentials()
        if found is None:
            raise StoreRefusedError("no credentials were found for the store")
        frozen = found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + timedelta(minutes=1),
        }
