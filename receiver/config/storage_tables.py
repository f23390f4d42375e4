"""The object store, and what it costs: `[storage]`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from common.config import ConfigFinding, Duration, Size, Timetable, UploadRules, Url

__all__ = ["PricesConfig", "StorageConfig"]


class PricesConfig(Struct, frozen=True, kw_only=True):
    """``[storage.prices]``: what a store asks for 1,000 requests; none is known by itself.

    Attributes:
        currency: what the prices are in, as it is shown.
        put: for 1,000 requests that put something, a part too, or copy or end an attempt.
        get: for 1,000 requests that read.
        head: for 1,000 requests that ask for one object.
        list: for 1,000 requests that list.
        delete: for 1,000 requests that remove.
    """

    currency: Annotated[str, Meta(max_length=16)] = "USD"
    put: Annotated[float, Meta(ge=0)] = 0.0
    get: Annotated[float, Meta(ge=0)] = 0.0
    head: Annotated[float, Meta(ge=0)] = 0.0
    list: Annotated[float, Meta(ge=0)] = 0.0
    delete: Annotated[float, Meta(ge=0)] = 0.0

    def of(self, requests: Mapping[str, int]) -> dict[str, float]:
        """What requests cost, by kind; empty where no price is known."""
        prices = {kind: float(getattr(self, kind, 0.0)) for kind in requests}
        return {kind: requests[kind] * price / 1000 for kind, price in prices.items() if price}


class StorageConfig(Struct, frozen=True, kw_only=True):
    """``[storage]``: where loaded files and the log are copied to, behind their commits.

    Attributes:
        url: ``s3://bucket/prefix``, or ``file:///directory``; none for no copies.
        endpoint: address of a store that is compatible with S3; none for AWS.
        region: region of the bucket; none for what the environment or the profile says.
        profile: profile of the credentials' file; none for the usual order: environment, profile,
            role.
        path_style: the bucket is in the path, not in the host's name, as many compatibles want.
        encryption: how a store of S3 keeps objects: `AES256`, or `aws:kms`; none for what the
            bucket says.
        kms_key: key of the key service by its id or ARN, for `aws:kms`; none for the bucket's.
        upload: when loaded files go there, by storage group; `set upload` in SQL says otherwise for
            one of them.
        before_ack: whether a task is *loaded* only when its files and its commit are there too.
        parallel: files on their way at once, and parts of one large file.
        bandwidth_limit: bytes a second of all copies of files together, or by the hour in local
            time.
        lag: how far the copy of the log is behind the commits, at most, while the store answers.
        grace: time that objects stay in the store when the history needs them no more. Longer than
            any receiver may have stood still while another took over.
        capacity: what loaded files may take in the data directories; those that are in the store,
            or without one at storage nodes (`nodes.evict_copies`), make room, the longest unused
            first. None: all of them stay.
        evict_above: part of the capacity above which files make room.
        evict_to: part of the capacity down to which files make room.
        pin_wait: how long a step waits for room for what it needs from the store, at most.
        scrub_days: days in which the store is asked for each object once; 0 for never.
        tree: keep the tree of files there too, as tables that others read by themselves.
        tree_every: time between two looks for what is new in the tree.
        prices: of requests, for `storage status`.
    """

    url: str | None = None
    endpoint: Url | None = None
    region: str | None = None
    profile: str | None = None
    path_style: bool = False
    encryption: Literal["AES256", "aws:kms"] | None = None
    kms_key: str | None = None
    upload: UploadRules = UploadRules()
    before_ack: bool = False
    parallel: Annotated[int, Meta(ge=1, le=64)] = 4
    bandwidth_limit: Timetable = Timetable()
    lag: Annotated[Duration, Meta(ge=0.1)] = 10.0
    grace: Annotated[Duration, Meta(ge=3600)] = 604800.0
    capacity: Annotated[Size, Meta(ge=1)] | None = None
    evict_above: Annotated[float, Meta(gt=0, le=1)] = 0.9
    evict_to: Annotated[float, Meta(ge=0, le=1)] = 0.8
    pin_wait: Annotated[Duration, Meta(ge=0)] = 30.0
    scrub_days: Annotated[int, Meta(ge=0)] = 30
    tree: bool = False
    tree_every: Annotated[Duration, Meta(ge=0.1)] = 10.0
    prices: PricesConfig = PricesConfig()

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        if self.evict_to >= self.evict_above:
            yield ConfigFinding("evict_to", "expected less than evict_above")
        if self.encryption is not None and not (self.url or "").startswith("s3://"):
            yield ConfigFinding("encryption", "expected with a url of S3: others have none")
        if self.kms_key is not None and self.encryption != "aws:kms":
            yield ConfigFinding("kms_key", 'expected with encryption = "aws:kms"')
        if self.tree and self.url is None:
            yield ConfigFinding("tree", "expected with url: that is where it is kept")
        if self.before_ack and self.url is None:
            yield ConfigFinding("before_ack", "expected with url: nothing would ever be loaded")
        if self.before_ack and not self.upload.is_always_at_once:
            text = 'expected with upload = "at once": nothing is acknowledged before its upload'
            yield ConfigFinding("before_ack", text)
