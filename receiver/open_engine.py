"""The metadata engine as a configuration has it: with its options, and with etcd behind it."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from common.console.terminal import printable
from common.errors import ConfigError, ConflictError, NotFoundError, TsferryError, UsageError
from receiver.datadirs.directory_finding import check_begun, check_first_start, warned_of_root
from receiver.metadata.engine import Engine
from receiver.metadata.model.engine_options import EngineOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from receiver.config import ReceiverConfig

__all__ = [
    "MADE",
    "Doubt",
    "check_etcd",
    "is_behind",
    "open_engine",
    "options_of",
    "read_current",
    "read_engine",
    "read_told",
    "stand_by",
]

MADE: Final = 1
"""LSN of the commit that an engine is made with: it holds nothing yet."""
_FLUSHED: Final = 2.0
"""Seconds in which a commit that is in etcd comes to the files of a receiver that runs."""
_log = logging.getLogger(__name__)


class Doubt(NamedTuple):
    """Why the files of a directory may not have what the receiver has committed.

    Attributes:
        text: for people.
        is_behind: it is known that they have not.
    """

    text: str
    is_behind: bool


class _Stand(NamedTuple):
    """How far the log in etcd is, of which engine it is, and who writes there."""

    newest: int
    uuid: str | None
    holder: str | None


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
    config.must_have_directories()
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


def read_engine(
    config: ReceiverConfig, *, options: EngineOptions | None = None
) -> tuple[Engine, Doubt | None]:
    """The engine as its files have it, beside a server that may be running.

    With etcd behind it they are a copy: another receiver may have committed since.

    Args:
        config: of the receiver.
        options: see `Engine.read_only`.

    Returns:
        The engine, and why it may not be what the receiver has committed by now.

    Raises:
        NotFoundError, DamagedError, NewerLogError: as `Engine.read_only`.
    """
    config.must_have_directories()
    stand, end, looks = _stand_in_etcd(config), time.monotonic() + _FLUSHED, 0
    while True:
        engine, looks = _read(config.schema_dir, options), looks + 1
        doubt = _doubt(config, engine, stand)
        is_settled = looks > 1 and time.monotonic() > end
        if doubt is None or not doubt.is_behind or is_settled:
            return engine, doubt
        engine.close()
        time.sleep(0.1)


def _read(schema_dir: Path, options: EngineOptions | None) -> Engine:
    try:
        return Engine.read_only(schema_dir, options=options)
    except NotFoundError as error:
        if not schema_dir.is_dir():
            raise
        raise NotFoundError(
            f"{error.message}: `tsferry-receiver serve` makes it at its first start"
        ) from error


def is_behind(config: ReceiverConfig, engine: Engine) -> bool:
    """Whether there are commits in etcd that an engine does not have which was read before."""
    doubt = _doubt(config, engine, _stand_in_etcd(config))
    return doubt is not None and doubt.is_behind


def read_told(config: ReceiverConfig, *, options: EngineOptions | None = None) -> Engine:
    """The same for who only shows it, with a warning where it may not be up to date."""
    engine, doubt = read_engine(config, options=options)
    if doubt is not None:
        _log.warning("%s", printable(doubt.text))
    return engine


def read_current(config: ReceiverConfig) -> Engine:
    """The same for who acts on it.

    Raises:
        ConflictError: it is not what the receiver has committed.
    """
    engine, doubt = read_engine(config)
    if doubt is not None and doubt.is_behind:
        engine.close()
        raise ConflictError(doubt.text)
    if doubt is not None:
        _log.warning("%s", printable(doubt.text))
    return engine


def _stand_in_etcd(config: ReceiverConfig) -> _Stand | TsferryError | None:
    """How far the log in etcd is, or why nobody knows; None where the files are all there is."""
    if config.metadata.backend != "etcd":
        return None
    from receiver.metadata.etcd.commits import open_remote

    try:
        remote = open_remote(config.metadata.etcd)
        try:
            holder = remote.look_on()
            return _Stand(remote.newest(), remote.uuid, holder)
        finally:
            remote.close()
    except TsferryError as error:
        return error


def _doubt(
    config: ReceiverConfig, engine: Engine, stand: _Stand | TsferryError | None
) -> Doubt | None:
    if isinstance(stand, TsferryError):
        return Doubt(
            f"{config.schema_dir} is a copy of what etcd has, as of commit {engine.newest_commit}; "
            f"whether there are newer commits is not known: {stand.message}",
            is_behind=False,
        )
    if stand is None or not stand.newest:
        return None
    if engine.uuid == stand.uuid and engine.published().lsn >= stand.newest:
        return None
    return Doubt(_say_behind(config, engine, stand), is_behind=True)


def _say_behind(config: ReceiverConfig, engine: Engine, stand: _Stand) -> str:
    more = f"has {stand.newest - engine.published().lsn} commits more"
    if engine.uuid != stand.uuid:
        more = f"has the commits of another engine, {stand.uuid}"
    way_out = "no receiver is at work there; one that starts begins with them"
    if stand.holder is not None:
        way_out = f"ask the receiver that is at work there, {stand.holder}"
    return (
        f"{config.schema_dir} is an old copy, as of commit {engine.newest_commit}: "
        f"{config.metadata.etcd.prefix} in etcd {more}; {way_out}"
    )


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
