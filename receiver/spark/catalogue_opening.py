"""Which catalogue an address means: of a server, of directories, or of an object store."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from common.config import ConfigError, load
from common.console.terminal import printable
from common.errors import UsageError
from receiver.config import ENV_PREFIX, FILE, ReceiverConfig
from receiver.spark.catalogue import Catalogue
from receiver.spark.local_catalogue import LocalCatalogue, StoreCatalogue
from receiver.spark.remote_catalogue import RemoteCatalogue
from receiver.storage.reading.open_stores import of_process
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress

__all__ = ["open_catalogue", "store_at", "unit_of"]

_log = logging.getLogger(__name__)


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
    config: ReceiverConfig | None = None,
) -> Catalogue:
    """The catalogue at a place.

    A schema directory alone does not say whether its commits are in etcd, where another receiver
    may have committed since: that is told, and nothing is read of one of which a configuration of
    this machine says so.

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
        config: of the receiver whose schema directory it is, where that is known.

    Raises:
        UsageError: it is no configuration file, schema directory or URL, or a directory of a
            receiver that has its commits in etcd.
        ConflictError: another receiver has committed since, by the same keys of etcd.
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
    if path.is_dir() and config is None:
        _check_alone(path)
        found = LocalCatalogue(path, kind, data_dirs, store=store, receiver=giving)
        _log.warning("%s", printable(_of_a_copy(path, found.newest)))
        return found
    if path.is_dir():
        return LocalCatalogue(path, kind, data_dirs, store=store, receiver=giving, config=config)
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


def _check_alone(schema_dir: Path) -> None:
    """Of a directory whose configuration this machine has that is asked, if it says more.

    Raises:
        UsageError: it does.
    """
    file = Path(os.environ.get(f"{ENV_PREFIX}CONFIG") or FILE)
    try:
        config = _configuration(file)
        is_of_it = os.path.samefile(config.schema_dir, schema_dir)
    except (ConfigError, OSError):
        return  # none that can be read here; it is said that nobody was asked
    if is_of_it and config.metadata.backend == "etcd":
        raise UsageError(
            f"option catalog = {str(schema_dir)!r}: {file} keeps the commits of this directory in "
            f"etcd, where another receiver may lead by now: name {file} itself, by which that is "
            "asked, or the URLs of all that may lead"
        )


def _of_a_copy(schema_dir: Path, commit: int) -> str:
    return (
        f"{schema_dir} is read as a copy as of commit {commit}, not as the receiver that leads: "
        "whether another one has committed since, by etcd, is asked only where the receiver's "
        "configuration file or URL is named in its place"
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
