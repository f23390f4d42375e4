"""The source that a URL means: an object store, or a receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from common.errors import ConfigError
from common.network.client_certificate import ClientCertificate

if TYPE_CHECKING:
    from receiver.config import FollowConfig, ReceiverConfig
    from receiver.follower.log_source import LogSource

__all__ = ["open_source"]


def open_source(config: ReceiverConfig) -> LogSource:
    """Open what `follow.url` means; of a store, `[storage]` says how it is spoken to.

    Raises:
        ConfigError: it means neither, or what it needs is not installed.
        StoreRefusedError: there is no such directory, or no region is known.
    """
    url = config.follow.url
    if url is None:
        raise ConfigError("follow.url: missing: the store or the receiver to follow")
    if url.startswith(("http://", "https://")):
        from receiver.follower.followed_receiver import FollowedReceiver

        token = config.follow.token
        revealed = None if token is None else token.reveal()
        return FollowedReceiver(url, revealed, config.follow.ca_cert, _certificate(config.follow))
    if not url.startswith(("s3://", "file:///")):
        raise ConfigError(
            f"follow.url: expected s3://bucket/prefix, file:///directory or a receiver's "
            f"https://host:port, not {url!a}"
        )
    from receiver.follower.followed_store import FollowedStore
    from receiver.storage.copying import store_of

    return FollowedStore(store_of(msgspec.structs.replace(config.storage, url=url)))


def _certificate(follow: FollowConfig) -> ClientCertificate | None:
    if follow.client_cert is None or follow.client_key is None:
        return None
    keys = ("follow.client_cert", "follow.client_key")
    return ClientCertificate(follow.client_cert, follow.client_key, follow.ca_cert, keys)
