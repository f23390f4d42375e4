"""The metadata engine, and etcd behind it: `[metadata]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from common.config import ConfigFinding, Duration, Secret, Size, Url

__all__ = ["EtcdConfig", "MetadataConfig"]


class EtcdConfig(Struct, frozen=True, kw_only=True):
    """``[metadata.etcd]``: where the commits are kept with ``backend = "etcd"``.

    Attributes:
        endpoints: addresses of the members, tried in turn.
        prefix: beginning of all keys of this receiver.
        user: name to log in with.
        password: password of the user.
        ca_cert: PEM file with the authorities that the members are checked against.
        cert: PEM certificate of this client; with `key`.
        key: PEM private key of this client; with `cert`.
        timeout: time that one request may take.
        lease: time without a sign of life, until another receiver may take over.
        standby: another receiver has the same keys, and data directories of its own: wait for its
            end, and take its place.
        url: address of this receiver, that one whose place it takes tells to whoever asks there;
            none for no address, only the name of the machine.
    """

    endpoints: tuple[Url, ...] = ("http://127.0.0.1:2379",)
    prefix: str = "/tsferry"
    user: str | None = None
    password: Secret | None = None
    ca_cert: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    timeout: Annotated[Duration, Meta(ge=0.1)] = 5.0
    lease: Annotated[Duration, Meta(ge=2)] = 15.0
    standby: bool = False
    url: Url | None = None

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        if not self.endpoints:
            yield ConfigFinding("endpoints", "expected at least one")
        if not self.prefix.strip("/"):
            yield ConfigFinding("prefix", "expected a name, such as /tsferry")
        if (self.cert is None) is not (self.key is None):
            yield ConfigFinding("cert", "expected with key, and key with cert")
        if (self.user is None) is not (self.password is None):
            yield ConfigFinding("user", "expected with password, and password with user")


class MetadataConfig(Struct, frozen=True, kw_only=True):
    """``[metadata]``: series, devices, tags and their history.

    Attributes:
        backend: ``embedded``: the log in `schema_dir` is the truth; ``etcd``: every commit is kept
            in etcd, and what is in `schema_dir` can be made anew from there.
        history: how far back questions can be asked; deleted files and rows stay that long.
        history_commits: how far back questions can be asked, as a number of commits; 0 for no such
            number. Where both are set, what reaches further back counts.
        max_memory: memory that series and storage groups may take; none for no limit.
        auto_create_schema: whether a loaded file makes the series and storage groups that it needs,
            and `create timeseries` its storage group (`enable_auto_create_schema` in Apache IoTDB);
            without it such a file is held.
        storage_group_level: how many nodes below root a storage group is made of when a loaded file
            has none; 0: the storage group that the file's directory names.
        tag_bytes: bytes of the tags and attributes of one series, at most.
        checkpoint_entries: commits in the log, until a checkpoint is taken.
        checkpoint_bytes: bytes of the log, until a checkpoint is taken: commits can be large.
            Behind a checkpoint of more than 16 times as much it is a sixteenth of that.
        checkpoint_rest: time without a commit, until a checkpoint is taken of what is new.
        fetch_size: rows of a page of an answer, where the question does not say.
        kv_ring: commits of the key-value store whose place is known without a search.
        ttl_every: time between two looks for files that are past their TTL.
        clock_jump: a step of the clock, or time off, beyond which it is believed only if the kernel
            calls it synchronised, senders' clocks agree with it, or an operator confirms it (`clock
            confirm`).
        txn_lease: time without a use, until a transaction is rolled back; the history that it reads
            is kept as long.
        txn_most: transactions at a time, at most.
        etcd: where the commits are kept with ``backend = "etcd"``.
    """

    backend: Literal["embedded", "etcd"] = "embedded"
    history: Duration = 604800.0
    history_commits: Annotated[int, Meta(ge=0)] = 0
    max_memory: Size | None = None
    auto_create_schema: bool = True
    storage_group_level: Annotated[int, Meta(ge=0, le=64)] = 0
    tag_bytes: Annotated[int, Meta(ge=16, le=1 << 20)] = 700
    checkpoint_entries: Annotated[int, Meta(ge=1)] = 100_000
    checkpoint_bytes: Annotated[Size, Meta(ge=65536)] = 64 * 2**20
    checkpoint_rest: Annotated[Duration, Meta(ge=1)] = 3600.0
    fetch_size: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    kv_ring: Annotated[int, Meta(ge=1, le=1 << 20)] = 1024
    ttl_every: Annotated[Duration, Meta(ge=1)] = 60.0
    clock_jump: Annotated[Duration, Meta(ge=60)] = 3600.0
    txn_lease: Annotated[Duration, Meta(ge=1, le=86400)] = 60.0
    txn_most: Annotated[int, Meta(ge=1, le=10_000)] = 100
    etcd: EtcdConfig = EtcdConfig()
