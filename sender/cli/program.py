"""What all commands of the sender begin with."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from common.console.cli import Invocation, Program, emit_json
from common.console.json_option import JsonForm
from common.console.json_option import json_option as declared_option
from common.console.terminal import printable
from common.errors import (
    EXIT_HELD,
    EXIT_INTERNAL,
    EXIT_LOCKED,
    EXIT_NOT_LOADED,
    EXIT_STOPPED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    UsageError,
)
from sender.config import ENV_PREFIX, FILE, ReceiverEntry, SenderConfig

if TYPE_CHECKING:
    from sender.send.remote import Remote

__all__ = [
    "PROGRAM",
    "Session",
    "emit_receivers",
    "json_option",
    "opened",
    "receiver_option",
    "reloading",
    "stopping",
    "warn_of_root",
]

_IN_PLACE = (".log", "daemon.lock", "engines.lock", "freed.lock", "sync.lock", "troubles.lock")
"""How files end that rounds write where they are; others are replaced by a rename."""
PROGRAM = Program(
    "tsferry-sender",
    SenderConfig,
    ENV_PREFIX,
    FILE,
    {
        0: "all that is closed is loaded",
        EXIT_INTERNAL: "internal error",
        EXIT_USAGE: "usage or configuration, or an extra is not installed",
        EXIT_NOT_LOADED: "files were not loaded (conflict, quarantined, refused, failed), or are "
        "lost; of `status`: so it stands",
        EXIT_UNREACHABLE: "the receiver is out of reach, or refuses; of `status`: it was, in the "
        "last round",
        EXIT_LOCKED: "another sender to this receiver runs, and does not answer",
        EXIT_HELD: "deletions are held by a receiver until its operator lets them through; of "
        "`status`, too",
        EXIT_STOPPED: "interrupted; the next round goes on",
    },
    (
        EXIT_INTERNAL,
        EXIT_USAGE,
        EXIT_STOPPED,
        EXIT_LOCKED,
        EXIT_UNREACHABLE,
        EXIT_NOT_LOADED,
        EXIT_HELD,
    ),
)

F = TypeVar("F", bound=Callable[..., Any])
_log = logging.getLogger(__name__)


def json_option(*forms: type | str | JsonForm, **how: str) -> Callable[[F], F]:
    """The option `--json` of a command that writes one of these forms, or as `how` says."""
    return declared_option(*forms, **{"name": "as_machine", **how})


receiver_option = click.option(
    "--receiver",
    "names",
    metavar="NAME",
    multiple=True,
    help="Only this receiver (may be repeated); otherwise all of them.",
)


@dataclass
class Session:
    """A command at work.

    Attributes:
        config: in force.
        remotes: to the receivers that the command is about.
        stop: set when the process is to end.
    """

    config: SenderConfig
    remotes: list[Remote]
    stop: threading.Event


@contextmanager
def opened(
    invocation: Invocation[SenderConfig],
    names: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
) -> Iterator[Session]:
    """Load the configuration, set up logging, make the remotes.

    Args:
        invocation: how the program was called.
        names: of receivers; none for all.
        flags: dotted keys of the command's own flags.

    Raises:
        UsageError: a name is not configured, or this sender has no identity yet.
    """
    from sender.kept import identity
    from sender.select.known_digests import KnownDigests
    from sender.send.remote import Remote

    loaded = invocation.load(flags)
    invocation.start(loaded.value.log)
    for warning in loaded.warnings:
        _log.warning("%s", printable(warning))
    config = loaded.value
    chosen = _chosen(config, names)
    uuid = identity.read(config.schema_dir)
    stop = threading.Event()
    digests = KnownDigests()
    remotes: list[Remote] = []
    try:
        for entry in chosen:
            remotes.append(Remote.make(config, entry, uuid, stop, digests=digests))
        yield Session(config, remotes, stop)
    finally:
        for remote in remotes:
            remote.close()


def warn_of_root(config: SenderConfig) -> None:
    """Say what root made in our directories, or is about to make there.

    Raises:
        NotPermittedError: this user cannot go on with what root made: that is said in its place.
    """
    from common.console.root_mistakes import refuse_of_root, root_mistakes

    sync = config.schema_dir / "sync"
    ours = [
        sync,
        *(each / name for each in config.data_dirs for name in (".tsferry", "sync-sender")),
    ]
    refuse_of_root(ours, _IN_PLACE)
    places = [sync if sync.exists() else config.schema_dir, *config.data_dirs]
    for warning in root_mistakes(places, below=ours):
        _log.warning("%s", printable(warning))


def _chosen(config: SenderConfig, names: Sequence[str]) -> list[ReceiverEntry]:
    known = {entry.name: entry for entry in config.receivers}
    for name in names:
        if name not in known:
            raise UsageError(f"receiver {name}: not configured (there are {', '.join(known)})")
    return [entry for entry in config.receivers if not names or entry.name in names]


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the work after the block on its way; the second at once.

    At once is safe as well: whatever the moment, the next round goes on from what is on disk.
    """

    def handler(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()
        if number == signal.SIGINT and sys.stderr.isatty():
            with suppress(RuntimeError):  # the signal came in the middle of another line
                click.echo("\nstopping after the block on its way; once more ends it", err=True)

    before = {each: signal.signal(each, handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, old in before.items():
            signal.signal(each, old)


@contextmanager
def reloading(reload: Callable[[], None]) -> Iterator[None]:
    """SIGHUP calls this, which only notes it; whatever comes of it, it ends no process."""
    before = signal.signal(signal.SIGHUP, lambda number, frame: reload())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if before is signal.SIG_DFL else before)


def emit_receivers(found: Mapping[str, Any], kind: type, exit_code: int) -> None:
    """Write one receiver's object as it is; several by name, with the exit code of the command.

    Args:
        found: receiver -> what is written of it.
        kind: type of these.
        exit_code: of the command.
    """
    from common.console.json_form import json_form

    if len(found) == 1:
        emit_json(next(iter(found.values())), kind)
        return
    forms = {name: json_form(each, kind) for name, each in found.items()}
    emit_json({"receivers": forms, "exit_code": exit_code})
