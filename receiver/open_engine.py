"""The metadata engine as a configuration has it: with its options, and with etcd behind it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from common.errors import ConfigError, UsageError
from receiver.directory_finding import check_begun, check_first_start, warned_of_root
from receiver.metadata.engine import Engine
from receiver.metadata.model.engine_options import EngineOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from receiver.config import ReceiverConfig

__all__ = ["MADE", "check_etcd", "open_engine", "options_of", "stand_by"]

MADE: Final = 1
"""LSN of the commit that an engine is made with: it holds nothing yet."""


def open_engine(
    config: ReceiverConfig, clock: Callable[[], float] = time.time, *, anew: bool = False
) -> Engine:
    """Open the engine of a receiver for writing; see `Engine.open`.

    Args:
        config: of the receiver.
        clock: seconds since the epoch.
        anew: make one even beside directories of an engine that is lost.

    Raises:
        ConfigError: there is none, or one that holds nothing, and the directories are another's.
        LockedError: another process has it open, here or, with etcd, on another machine.
        DamagedError: the log is damaged.
        UnreachableError: etcd does not answer.
    """
    remote = None
    if config.metadata.backend == "etcd":
        from receiver.metadata.etcd.commits import open_remote

        remote = open_remote(config.metadata.etcd)
    options = options_of(config)
    with warned_of_root(config):
        engine = Engine.open(
            config.schema_dir,
            clock=clock,
            options=options,
            remote=remote,
            may_make=(lambda: None) if anew else lambda: check_first_start(config),
        )
    if not anew and engine.published().lsn <= MADE:
        try:
            check_begun(config, engine.uuid)
        except ConfigError:
            engine.close()
            raise
    return engine


def stand_by(config: ReceiverConfig) -> None:
    """Wait until no other receiver is at work on the same keys of etcd.

    Raises:
        UsageError: this one keeps its commits elsewhere, and nobody could take its place.
    """
    if config.metadata.backend != "etcd":
        raise UsageError('metadata.etcd.standby: expected with metadata.backend = "etcd"')
    from receiver.metadata.etcd.commits import open_remote

    remote = open_remote(config.metadata.etcd)
    try:
        remote.stand_by()
    finally:
        remote.close()


def check_etcd(config: ReceiverConfig, engine: str, *, may_have_commits: bool) -> None:
    """See that a restored directory of an engine would be what a start goes on from.

    With etcd behind the engine, what is there wins at every start: a directory that was made of
    copies would be set aside for it.

    Args:
        config: of the receiver; nothing is asked where its commits are not in etcd.
        engine: uuid of the engine that is restored.
        may_have_commits: of that engine; they came from the restored directory.

    Raises:
        UsageError: it would not.
        LockedError: a receiver is at work there.
        UnreachableError: etcd does not answer.
    """
    if config.metadata.backend != "etcd":
        return
    from receiver.metadata.etcd.commits import open_remote

    remote = open_remote(config.metadata.etcd)
    try:
        remote.acquire()
        if remote.newest() and not (may_have_commits and remote.uuid == engine):
            raise UsageError(
                f"{config.metadata.etcd.prefix} in etcd has {remote.newest()} commits of engine "
                f"{remote.uuid}, which a start goes on from; to restore, name an empty "
                "metadata.etcd.prefix"
            )
    finally:
        remote.close()


def options_of(config: ReceiverConfig) -> EngineOptions:
    """The options that a configuration stands for."""
    metadata, storage = config.metadata, config.storage
    return EngineOptions(
        history=metadata.history,
        history_commits=metadata.history_commits,
        clock_jump=metadata.clock_jump,
        max_memory=metadata.max_memory,
        auto_create=metadata.auto_create_schema,
        storage_group_level=metadata.storage_group_level,
        tag_bytes=metadata.tag_bytes,
        checkpoint_entries=metadata.checkpoint_entries,
        checkpoint_bytes=metadata.checkpoint_bytes,
        checkpoint_rest=metadata.checkpoint_rest,
        fetch_size=metadata.fetch_size,
        kv_ring=metadata.kv_ring,
        upload=None if storage.url is None else storage.upload,
        before_ack=storage.before_ack,
    )
