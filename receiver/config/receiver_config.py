"""The whole of a receiver's configuration, and what no single table of it can tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

from msgspec import Meta, Struct

from common.config import ConfigFinding, Duration
from common.config.shared_rules import TimeUnit, overlapping, whole_milliseconds
from common.console.logs import LogConfig
from common.errors import UsageError
from common.hooks.hooks_config import HooksConfig
from receiver.config.listening_tables import AuthConfig, ListenConfig, MetricsConfig, PageConfig
from receiver.config.loading_tables import (
    DeletesConfig,
    LimitsConfig,
    LoadConfig,
    MergeConfig,
    ProofsConfig,
    SendersConfig,
)
from receiver.config.metadata_tables import MetadataConfig
from receiver.config.node_tables import FollowConfig, NodeConfig, NodesConfig, OperatorConfig
from receiver.config.storage_tables import StorageConfig

__all__ = ["ENV_PREFIX", "FILE", "NO_DIRECTORY", "ReceiverConfig"]

ENV_PREFIX = "TSFERRY_RECEIVER_"
FILE = Path("/etc/tsferry/receiver.toml")
NO_DIRECTORY = "/dev/null/operator.url"
"""Stands for the directories where there are none, but a receiver on another machine; no such path
can ever be there."""


class ReceiverConfig(Struct, frozen=True, kw_only=True):
    """The whole of ``receiver.toml``.

    Attributes:
        schema_dir: directory that holds the metadata engine.
        data_dirs: directories that hold the loaded files. With several, on as many disks, a
            sender's go to the one with most room when it first comes, and to another one when that
            runs short.
        partition_interval: width of a time partition; senders with another are refused.
        time_unit: unit of the timestamps in the data; senders with another are refused.
        listen: who can reach the server.
        auth: who is asked for a token.
        page: the web page for people.
        limits: what one sender can make it hold.
        load: what becomes of files.
        nodes: where they lie.
        proofs: of what is superseded.
        merge: of small and overlapping files.
        deletes: what one sender may delete without an operator.
        senders: what is expected of edges.
        metrics: what a monitoring system scrapes.
        hooks: who is told of what happens.
        metadata: series, devices, tags and their history.
        storage: where loaded files and the log are copied to.
        follow: what a node that only reads follows.
        node: of a storage node.
        operator: the receiver that commands speak to, if it is on another machine.
        log: where records go.
    """

    schema_dir: Path
    data_dirs: Annotated[tuple[Path, ...], Meta(min_length=1)]
    partition_interval: Annotated[Duration, Meta(ge=0.001)] = 604800.0
    time_unit: TimeUnit = "ms"
    listen: ListenConfig = ListenConfig()
    auth: AuthConfig = AuthConfig()
    page: PageConfig = PageConfig()
    limits: LimitsConfig = LimitsConfig()
    load: LoadConfig = LoadConfig()
    nodes: NodesConfig = NodesConfig()
    proofs: ProofsConfig = ProofsConfig()
    merge: MergeConfig = MergeConfig()
    deletes: DeletesConfig = DeletesConfig()
    senders: SendersConfig = SendersConfig()
    metrics: MetricsConfig = MetricsConfig()
    hooks: HooksConfig = HooksConfig()
    metadata: MetadataConfig = MetadataConfig()
    storage: StorageConfig = StorageConfig()
    follow: FollowConfig = FollowConfig()
    node: NodeConfig = NodeConfig()
    operator: OperatorConfig = OperatorConfig()
    log: LogConfig = LogConfig()

    def must_have_directories(self) -> None:
        """For what is done with them: where another machine's receiver is named, nothing is.

        That there are directories as well is no reason: they are those of another receiver.

        Raises:
            UsageError: a receiver on another machine is named.
        """
        if self.operator.url is not None:
            raise UsageError(
                f"operator.url = {self.operator.url}: this is done on the receiver's own machine, "
                "with its configuration (schema_dir, data_dirs)"
            )

    @property
    def partition_interval_ms(self) -> int:
        """The width of a time partition in milliseconds."""
        return round(self.partition_interval * 1000)

    def check(self) -> Iterator[ConfigFinding]:
        """What no single table can tell."""
        if self.storage.capacity is not None and self.storage.url is None:
            if not self.nodes.evict_copies:
                text = "expected with url, or nodes.evict_copies: what leaves the disk is there"
                yield ConfigFinding("storage.capacity", text)
        elif self.nodes.evict_copies:
            text = (
                "expected with storage.capacity, and without storage.url: where there is a store, "
                "what leaves the disk is in it"
            )
            yield ConfigFinding("nodes.evict_copies", text)
        yield from overlapping("data_dirs", self.data_dirs)
        yield from whole_milliseconds("partition_interval", self.partition_interval)
        if self.node.master and self.follow.url is not None:
            text = "expected without follow.url: a storage node follows nobody"
            yield ConfigFinding("node.master", text)
        if self.node.master and self.listen.wants_certificates:
            text = (
                "expected optional at a storage node: its master and readers come with keys "
                "and tickets, and show it no certificate"
            )
            yield ConfigFinding("listen.client_auth", text)
        if self.node.cache_dir is not None:
            if self.storage.url is None:
                text = "expected with storage.url: what is kept there is read in the object store"
                yield ConfigFinding("node.cache_dir", text)
            for path in (self.schema_dir, *self.data_dirs):
                yield from overlapping("node.cache_dir", (path, self.node.cache_dir))
        for key in ("max_chunk_bytes", "max_batch_bytes"):
            if getattr(self.limits, key) > self.listen.max_request_bytes:
                yield ConfigFinding(f"limits.{key}", "expected at most listen.max_request_bytes")
        if self.storage.url is not None and self.storage.url.startswith("file:///"):
            store = Path(unquote(self.storage.url.removeprefix("file://"))).resolve()
            for path in (self.schema_dir, *self.data_dirs):
                if store.is_relative_to(path.resolve()):
                    text = f"expected a directory that is not in {path}: both would be lost at once"
                    yield ConfigFinding("storage.url", text)
