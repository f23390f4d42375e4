"""What the answers of an S3 store, and the lack of one, mean here."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

import botocore.exceptions as failures
from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from common.errors import TsferryError
from common.text_numbers import retry_after_seconds
from receiver.storage.stores.object_content import ContentChangedError
from receiver.storage.stores.object_store import (
    ClockSkewError,
    ObjectArchivedError,
    ObjectExistsError,
    ObjectMissingError,
    StoreAwayError,
    StoreFailingError,
    StoreForbiddenError,
    StoreFullError,
    StoreMissingError,
    StoreReadOnlyError,
    StoreRefusedError,
)

__all__ = ["quick_errors", "s3_errors"]

_TAKEN = ("PreconditionFailed", "412")
_NO_BUCKET = ("NoSuchBucket",)
_FORBIDDEN = (
    "403",
    "AccessDenied",
    "AllAccessDisabled",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
)
_WRITES = ("put ", "remove ", "create ", "upload ", "complete ", "abort ", "abandon ")
"""What is done with a store that changes something of it, by how it is said."""
_MISSING = ("NoSuchKey", "404", "NotFound", "NoSuchUpload")
_DAMAGED = (
    "BadDigest",
    "InvalidDigest",
    "XAmzContentChecksumMismatch",
    "XAmzContentSHA256Mismatch",
)
_LATER = ("SlowDown", "RequestTimeout", "ConditionalRequestConflict", "OperationAborted", "409")
"""Codes, beside every status of 500 and above and 429, that another try may get past."""
_SKEWED = ("RequestTimeTooSkewed", "RequestExpired")
_ARCHIVED = ("InvalidObjectState",)
_FULL = (
    "InsufficientStorage",
    "QuotaExceeded",
    "XMinioAdminBucketQuotaExceeded",
    "XMinioStorageFull",
    "507",
)
"""As Ceph and MinIO say it, and a server or a proxy that has the status alone."""
_FAILING = "InternalError"
"""Of what is put it is all that SeaweedFS says when no volume has room."""
_CODE = re.compile(r"<Code>(\w+)</Code>")
_BELIEVED = 600.0
"""Seconds that clocks may be apart and a refusal has other reasons; S3 stores allow 900."""
_PAUSE = 5.0
"""Seconds that a store which asks for it is left alone, where it does not say how long."""


@contextlib.contextmanager
def s3_errors(url: str, what: str) -> Iterator[None]:
    """Raise the errors of botocore as ours.

    Args:
        url: of the store.
        what: is done with it, such as ``put x``.
    """
    where = f"{url}: {what}"
    try:
        yield
    except failures.ClientError as error:
        raise _of_answer(error, where, what) from error
    except (failures.NoCredentialsError, failures.PartialCredentialsError) as error:
        raise StoreForbiddenError(f"{where}: {error}") from error
    except (failures.ConnectionError, failures.HTTPClientError) as error:
        raise StoreAwayError(f"{where}: {error}") from error
    except failures.BotoCoreError as error:
        raise StoreRefusedError(f"{where}: {error}") from error


def _of_answer(error: failures.ClientError, where: str, what: str) -> TsferryError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    about = error.response.get("ResponseMetadata", {})
    status = int(about.get("HTTPStatusCode", 0))
    headers = about.get("HTTPHeaders", {})
    text = f"{where}: {code or status}: {error.response.get('Error', {}).get('Message', '')}"
    if code == "403" and abs(_ahead(headers) or 0.0) > _BELIEVED:
        code = _SKEWED[0]  # what answers to HEAD have no body to say
    named = _named(code, text, headers)
    if named is not None:
        return named
    if code in _FORBIDDEN:
        # Credentials that nobody knows may not read either; who is denied the one thing may the
        # other, as far as is known here.
        is_denied = code == "AccessDenied" and what.startswith(_WRITES)
        return (StoreReadOnlyError if is_denied else StoreForbiddenError)(text)
    if code in _TAKEN:
        return ObjectExistsError(text)
    if code in _MISSING:
        return ObjectMissingError(text)
    if code in _DAMAGED:
        return ContentChangedError(text)
    if code == _FAILING and what.startswith(_WRITES):
        text = f"{text.rstrip('. ')}; a store that is full may say no more than that"
        return StoreFailingError(text, retry_after=_pause(headers))
    if status >= 500 or status == 429 or code in _LATER:
        return StoreAwayError(text, retry_after=_pause(headers))
    return StoreRefusedError(text)


def _named(code: str, text: str, headers: dict[str, str]) -> TsferryError | None:
    """What somebody has to do something about, and is told what."""
    if code in _SKEWED:
        return ClockSkewError(f"{text.rstrip('. ')}; {_apart(headers)}: set the clock right")
    if code in _ARCHIVED:
        return ObjectArchivedError(
            f"{text.rstrip('. ')}; the object is archived, and has to be restored in the store "
            "first"
        )
    if code in _NO_BUCKET:
        return StoreMissingError(text)
    if code in _FULL:
        text = f"{text.rstrip('. :')}; the store is full, or the quota of the bucket is used up"
        return StoreFullError(text, retry_after=_pause(headers))
    return None


def _apart(headers: dict[str, str]) -> str:
    """How far the store's clock is from ours, in words."""
    seconds = _ahead(headers)
    if seconds is None:
        return "the clock here and that of the store are too far apart"
    side = "ahead of" if seconds > 0 else "behind"
    return f"the clock here is {abs(seconds):.0f} s {side} that of the store"


def _ahead(headers: dict[str, str]) -> float | None:
    """Seconds that our clock is ahead of that of an answer; None: it has none."""
    try:
        return time.time() - parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError):
        return None


@contextlib.contextmanager
def quick_errors(url: str, what: str) -> Iterator[None]:
    """Raise the errors of obstore as ours; it tells of an answer by its text alone.

    Args:
        url: of the store.
        what: is done with it, such as ``read x``.
    """
    where = f"{url}: {what}"
    try:
        yield
    except FileNotFoundError as error:
        if any(f"<Code>{code}</Code>" in str(error) for code in _NO_BUCKET):
            raise StoreMissingError(f"{where}: {_NO_BUCKET[0]}") from error
        raise ObjectMissingError(f"{where}: not there") from error
    except BaseError as error:
        found = _CODE.search(str(error))
        text = f"{where}: {str(error).partition(chr(10))[0]}"
        code = "" if found is None else found[1]
        named = _named(code, f"{where}: {code}", {})
        if named is not None:
            raise named from error
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            raise StoreForbiddenError(text) from error
        raise StoreAwayError(text) from error


def _pause(headers: dict[str, str]) -> float:
    asked = retry_after_seconds(headers.get("retry-after"), time.time())
    return _PAUSE if asked is None else asked
