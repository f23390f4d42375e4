"""Which catalogue an address means: of a server, of directories, or of an object store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from common.config import load
from common.errors import UsageError
from receiver.config import ENV_PREFIX, ReceiverConfig
from receiver.spark.local_catalogue import LocalCatalogue, StoreCatalogue
from receiver.spark.remote_catalogue import RemoteCatalogue
from receiver.storage.reading.open_stores import of_process
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress

if TYPE_CHECKING:
    pass

from receiver.spark.catalogue import Catalogue

__all__ = ["open_catalogue", "store_at", "unit_of"]


def open_catalogue(
    where: str,
    *,
    kind: str = "all",
    data_dirs: Sequence[str] = (),
    token: str | None = None,
    ca_cert: str | None = None,
    client_cert: str | None = None,
    client_key: str | None = None,
    store: StoreAddress | None = None,
    receiver: str | None = None,
) -> Catalogue:
    """The catalogue at a place.

    Args:
        where: the receiver's configuration file, its schema directory or its URL, or several of
            those that may take its place, with commas; or that of the object store which has its
            copies.
        kind: which of a database's files.
        data_dirs: where the data directories are for the workers, if elsewhere.
        token: of a reader, for a URL.
        ca_cert: PEM file that the server of a URL is checked against.
        client_cert: PEM certificate that it is shown in the place of a token.
        client_key: PEM private key of that.
        store: that has the files, if another than the receiver says.
        receiver: URL of the one that gives files to workers which have them neither on a disk nor
            in the store; that of the catalogue, if left out.

    Raises:
        UsageError: it is no configuration file, schema directory or URL.
        NotFoundError: there is no engine in the directory, or none was copied to the store.
        UnreachableError: nobody answers at the URL.
    """
    is_url = where.startswith(("http://", "https://"))
    asked = receiver or (where if is_url else None)
    shown = ca_cert, client_cert, client_key
    giving = None if asked is None else ReceiverAddress(asked.rstrip("/"), *shown)
    if giving is not None:
        of_process.give_token(giving.url, token)
    if is_url:
        address = ReceiverAddress(where, *shown)
        return RemoteCatalogue(address, kind, data_dirs, token=token, store=store, receiver=giving)
    if where.startswith(("s3://", "file:///")):
        there = store or store_at(where, os.environ)
        return StoreCatalogue(there, kind, data_dirs, receiver=giving)
    path = Path(where).absolute()
    if path.is_dir():
        return LocalCatalogue(path, kind, data_dirs, store=store, receiver=giving)
    if path.is_file():
        config = _configuration(path)
        return LocalCatalogue(
            config.schema_dir,
            kind,
            data_dirs or tuple(map(str, config.data_dirs)),
            store=store or StoreAddress.of(config.storage),
            receiver=giving,
            config=config,
        )
    raise UsageError(
        f"option catalog = {where!r}: expected a receiver's configuration file, its schema "
        "directory or its URL, or that of its object store; there is nothing"
    )


def store_at(url: str, environ: Mapping[str, str]) -> StoreAddress:
    """How a store is spoken to whose URL alone is given: as AWS's own tools are told."""
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    region = environ.get("AWS_REGION")
    return StoreAddress(url, endpoint, region, path_style=endpoint is not None)


def unit_of(where: str) -> Literal["ms", "us", "ns"] | None:
    """The unit of the times, where the receiver's configuration is at hand."""
    path = Path(where)
    return _configuration(path).time_unit if path.is_file() else None


def _configuration(path: Path) -> ReceiverConfig:
    return load(
        ReceiverConfig, file=path, env_prefix=ENV_PREFIX, environ=os.environ, flags={},
        secrets=False,
    ).value  # fmt: skip
