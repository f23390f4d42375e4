"""The metadata engine as a configuration has it: with its options, and with etcd behind it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from receiver.disks import check_first_start
from receiver.metadata.engine import Engine
from receiver.metadata.model.engine_options import EngineOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.config import MetadataConfig, ReceiverConfig

__all__ = ["open_engine", "options_of"]


def open_engine(
    config: ReceiverConfig, clock: Callable[[], float] = time.time, *, anew: bool = False
) -> Engine:
    """Open the engine of a receiver for writing; see `Engine.open`.

    Args:
        config: of the receiver.
        clock: seconds since the epoch.
        anew: make one even beside directories of an engine that is lost.

    Raises:
        ConfigError: there is none, and the directories are another engine's.
        LockedError: another process has it open, here or, with etcd, on another machine.
        DamagedError: the log is damaged.
        UnreachableError: etcd does not answer.
    """
    remote = None
    if config.metadata.backend == "etcd":
        from receiver.metadata.etcd.commits import open_remote

        remote = open_remote(config.metadata.etcd)
    options = options_of(config.metadata)
    return Engine.open(
        config.schema_dir,
        clock=clock,
        options=options,
        remote=remote,
        may_make=(lambda: None) if anew else lambda: check_first_start(config),
    )


def options_of(config: MetadataConfig) -> EngineOptions:
    """The options that a configuration stands for."""
    return EngineOptions(
        history=config.history,
        history_commits=config.history_commits,
        clock_jump=config.clock_jump,
        max_memory=config.max_memory,
        auto_create=config.auto_create_schema,
        storage_group_level=config.storage_group_level,
        tag_bytes=config.tag_bytes,
        checkpoint_entries=config.checkpoint_entries,
        checkpoint_bytes=config.checkpoint_bytes,
        checkpoint_rest=config.checkpoint_rest,
        fetch_size=config.fetch_size,
        kv_ring=config.kv_ring,
    )
