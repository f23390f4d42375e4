"""Where an object is, as far as one process tells another: no secret is ever part of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StoreAddress", "StoredPlace"]


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """How a store is spoken to; credentials are those of the environment of whoever speaks.

    Attributes:
        url: ``s3://bucket/prefix``, or ``file:///directory``.
        endpoint: of a compatible store; None for AWS.
        region: None for what the environment or the profile says.
        profile: of the credentials' file, where that has one of this name.
        path_style: the bucket is in the path, not in the host's name.
    """

    url: str
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    path_style: bool = False


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """An object of a file.

    Attributes:
        store: that has it.
        key: of the object, below the store's prefix.
        size: bytes.
        md5: of all of it, in hex.
        blocks: MD5 of the object with the digests of its blocks; "" where there is none.
    """

    store: StoreAddress
    key: str
    size: int
    md5: str
    blocks: str = ""
