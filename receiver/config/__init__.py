"""The configuration of the receiver; ``conf/receiver.toml`` shows every key with its default."""

from receiver.config.listening_tables import AuthConfig, ListenConfig, MetricsConfig, PageConfig
from receiver.config.loading_tables import (
    DeletesConfig,
    LimitsConfig,
    LoadConfig,
    MergeConfig,
    ProofsConfig,
    SendersConfig,
)
from receiver.config.metadata_tables import EtcdConfig, MetadataConfig
from receiver.config.node_tables import FollowConfig, NodeConfig, NodesConfig, OperatorConfig
from receiver.config.receiver_config import ENV_PREFIX, FILE, NO_DIRECTORY, ReceiverConfig
from receiver.config.storage_tables import PricesConfig, StorageConfig

__all__ = [
    "ENV_PREFIX",
    "FILE",
    "NO_DIRECTORY",
    "AuthConfig",
    "DeletesConfig",
    "EtcdConfig",
    "FollowConfig",
    "LimitsConfig",
    "ListenConfig",
    "LoadConfig",
    "MergeConfig",
    "MetadataConfig",
    "MetricsConfig",
    "NodeConfig",
    "NodesConfig",
    "OperatorConfig",
    "PageConfig",
    "PricesConfig",
    "ProofsConfig",
    "ReceiverConfig",
    "SendersConfig",
    "StorageConfig",
]
