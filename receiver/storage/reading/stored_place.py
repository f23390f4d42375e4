"""Where a file is beside the disks, as one process tells another: no secret is part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from receiver.config import StorageConfig

__all__ = ["ReceiverAddress", "StoreAddress", "StoredPlace"]


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

    @classmethod
    def of(cls, config: StorageConfig) -> StoreAddress | None:
        """The store of a configuration, for who reads it; None where it has none."""
        if config.url is None:
            return None
        return cls(config.url, config.endpoint, config.region, config.profile, config.path_style)


@dataclass(frozen=True, slots=True)
class ReceiverAddress:
    """A receiver, or a node, that gives readers the bytes of files; by a token of whoever asks.

    Attributes:
        url: of its server.
        ca_cert: PEM file that an https server is checked against, where the reader has one there.
        client_cert: PEM certificate that it is shown in the place of a token, likewise.
        client_key: PEM private key of that, likewise.
    """

    url: str
    ca_cert: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """Where a file can be read that is on no disk at hand.

    Attributes:
        store: that has it; None where none has, or nobody says which.
        key: of the object, below the store's prefix; "" where no commit told that it was put.
        size: bytes.
        md5: of all of it, in hex.
        blocks: MD5 of the object with the digests of its blocks; "" where there is none.
        receiver: that is asked by whom the store gives nothing.
        physical: its name there.
        engine: uuid of the metadata engine that has its row.
    """

    store: StoreAddress | None
    key: str
    size: int
    md5: str
    blocks: str = ""
    receiver: ReceiverAddress | None = None
    physical: str = ""
    engine: str = ""

    @property
    def store_url(self) -> str:
        """Of the store, for messages."""
        return "" if self.store is None else self.store.url
