"""The store that a URL means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from common.errors import ConfigError
from receiver.storage.stores.object_store import ObjectStore

__all__ = ["StoreOptions", "open_store"]

_ELSE = (
    "a large object could be put there only over what has its key, and nothing says which bytes it "
    "keeps; use a store that speaks S3 and passes tsferry-receiver storage check, or a directory"
)
_OTHERS = dict.fromkeys(("gs", "gcs", "az", "azure", "abfs", "abfss", "adl"), _ELSE)
"""Why a scheme that others know is none here."""


@dataclass(frozen=True)
class StoreOptions:
    """How a store is spoken to, where its URL does not say it.

    Attributes:
        endpoint: of a store that is compatible with S3; None for AWS.
        region: None for what the environment or the profile says.
        profile: of the credentials' file; None for the usual order.
        path_style: the bucket is in the path, not in the host's name.
        parallel: parts of one object on their way at once.
        encryption: that a store of S3 is asked for, ``AES256`` or ``aws:kms``.
        kms_key: of the key service, by its id or ARN.
    """

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    path_style: bool = False
    parallel: int = 4
    encryption: str | None = None
    kms_key: str | None = None


def open_store(url: str, options: StoreOptions = StoreOptions()) -> ObjectStore:
    """Open the store of a URL: ``s3://bucket/prefix`` or ``file:///directory``.

    Those of Google and Azure are refused by name: obstore puts a large object there in parts over
    whatever has its key, and tells no digest of what they keep.

    Raises:
        ConfigError: it means none, or what it needs is not installed.
        StoreRefusedError: there is no such directory, or no region is known.
    """
    try:
        pieces = urlsplit(url)
    except ValueError:  # what it says may repeat a secret
        raise ConfigError("storage.url: expected s3://bucket/prefix or file:///directory") from None
    if pieces.scheme in _OTHERS:
        why = _OTHERS[pieces.scheme]
        raise ConfigError(f"storage.url: {pieces.scheme}:// is not supported: {why}")
    if pieces.query or pieces.fragment or pieces.username or pieces.password:
        bare = f"{pieces.scheme}://{pieces.netloc.rpartition('@')[2]}{pieces.path}"
        raise ConfigError(
            f"storage.url: {bare!a} is all that it may have; credentials come from the "
            "environment or a profile"
        )
    path = unquote(pieces.path).strip("/")
    if url.startswith("file:///") and path:
        from receiver.storage.stores.directory_store import DirectoryStore

        return DirectoryStore(Path("/", path))
    if pieces.scheme == "s3" and pieces.netloc:
        if path and {"", ".", ".."} & set(path.split("/")):
            raise ConfigError(f"storage.url: no part of the prefix may be empty, . or ..: {url!a}")
        try:
            from receiver.storage.stores.s3_store import S3Place, S3Store
        except ImportError as error:
            text = f"storage.url: {url} needs pip install 'tsferry[s3]' ({error})"
            raise ConfigError(text) from None
        place = S3Place(
            bucket=pieces.netloc,
            prefix=path,
            endpoint=options.endpoint,
            region=options.region,
            profile=options.profile,
            path_style=options.path_style,
            parallel=options.parallel,
            encryption=options.encryption,
            kms_key=options.kms_key,
        )
        return S3Store(place)
    raise ConfigError(f"storage.url: expected s3://bucket/prefix or file:///directory, not {url!a}")
