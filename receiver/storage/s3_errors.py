"""What the answers of an S3 store, and the lack of one, mean here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import botocore.exceptions as failures

from common.errors import TsferryError
from receiver.storage.object_content import ContentChangedError
from receiver.storage.object_store import (
    ObjectExistsError,
    ObjectMissingError,
    StoreAwayError,
    StoreRefusedError,
)

__all__ = ["s3_errors"]

_TAKEN = ("PreconditionFailed", "412")
_MISSING = ("NoSuchKey", "404", "NotFound", "NoSuchUpload")
_DAMAGED = (
    "BadDigest",
    "InvalidDigest",
    "XAmzContentChecksumMismatch",
    "XAmzContentSHA256Mismatch",
)
_LATER = ("SlowDown", "RequestTimeout", "ConditionalRequestConflict", "OperationAborted", "409")
"""Codes, beside every status of 500 and above and 429, that another try may get past."""
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
        raise _of_answer(error, where) from error
    except (failures.NoCredentialsError, failures.PartialCredentialsError) as error:
        raise StoreRefusedError(f"{where}: {error}") from error
    except (failures.ConnectionError, failures.HTTPClientError) as error:
        raise StoreAwayError(f"{where}: {error}") from error
    except failures.BotoCoreError as error:
        raise StoreRefusedError(f"{where}: {error}") from error


def _of_answer(error: failures.ClientError, where: str) -> TsferryError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    about = error.response.get("ResponseMetadata", {})
    status = int(about.get("HTTPStatusCode", 0))
    text = f"{where}: {code or status}: {error.response.get('Error', {}).get('Message', '')}"
    if code in _TAKEN:
        return ObjectExistsError(text)
    if code in _MISSING:
        return ObjectMissingError(text)
    if code in _DAMAGED:
        return ContentChangedError(text)
    if status >= 500 or status == 429 or code in _LATER:
        return StoreAwayError(text, retry_after=_pause(about.get("HTTPHeaders", {})))
    return StoreRefusedError(text)


def _pause(headers: dict[str, str]) -> float:
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return _PAUSE
