"""`backup`: a receiver's files and log into a directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from common import wire
from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import counted, printable, size_text
from common.durable import Tree
from common.errors import ConflictError, TsferryError, UnreachableError
from receiver.cli.command_answers import BackupDone, LackingFile
from receiver.config import ReceiverConfig
from receiver.datadirs.disks import AwayError
from receiver.metadata.engine import Engine
from receiver.operator.centre.loaded_content import MOST_CONTENT
from receiver.operator.client import NotRunningError, OperatorClient
from receiver.operator.directories import look
from receiver.operator.stored.backup_note import BackupNote, write_backup_note
from receiver.operator.views.status_views import StorageView

__all__ = ["backup"]

_PATIENCE = 30.0
"""Seconds until a commit that was read from the log must count at its server."""


@click.command(
    epilog="Example: tsferry-receiver backup /mnt/backups/centre-1; then tsferry-receiver restore "
    "--check --from file:///mnt/backups/centre-1. Exit codes: 0 done; 1 it is another "
    "receiver's, or that of one which was restored from it; 2 configuration, or there is no "
    "receiver; 3 files could not be copied: they are named; 4 a directory is away."
)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@json_option(BackupDone)
@click.pass_context
def backup(ctx: click.Context, directory: Path, as_json: bool) -> None:
    """Copy loaded files and the log into a directory, of which `restore` makes a receiver.

    A server may run meanwhile. What is there already is not copied again, and nothing goes from
    there.
    """
    from common.console.progress_line import showing_progress
    from receiver.storage.backing_up import back_up
    from receiver.storage.copying import store_of
    from receiver.storage.stores.directory_store import DirectoryStore

    invocation: Invocation[ReceiverConfig] = ctx.obj
    config = invocation.load().value
    with look(config) as there:  # nothing is made for a receiver that is none
        if there.doubt is not None and there.doubt.is_behind:
            raise ConflictError(f"{there.doubt.text}; a backup of this one would lack them")
    Tree(directory, create=True).close()
    with ExitStack() as stack:
        store = DirectoryStore(directory.resolve())
        stack.callback(store.close)
        remote = None if config.storage.url is None else store_of(config.storage)
        if remote is not None:
            stack.callback(remote.close)
        home = stack.enter_context(Tree(config.schema_dir))
        told = stack.enter_context(showing_progress(as_json))
        found = back_up(
            store,
            home,
            lambda: _as_it_is(config),
            remote=remote,
            given=_given_by(config),
            told=told,
        )
    if not found.lacking:
        _note(config, BackupNote(at=time.time(), commit=found.commit, directory=str(directory)))
    lacking = [(row.sender, row.path, why) for row, why in found.lacking]
    if as_json:
        emit_json(
            BackupDone(
                engine=found.engine,
                commit=found.commit,
                files=found.files,
                copied=found.copied,
                bytes=found.bytes,
                lacking=[
                    LackingFile(sender=sender, path=path, reason=why)
                    for sender, path, why in lacking
                ],
            )
        )
    else:
        click.echo(
            f"engine {found.engine}: {counted(found.copied, 'file')} "
            f"({size_text(found.bytes)}) copied, "
            f"{found.files} are in the backup, up to commit {found.commit}"
        )
        for sender, path, why in lacking:
            click.echo(f"not copied: {printable(path)} of {sender}: {printable(why)}")
    if lacking:
        ctx.exit(3)


def _given_by(config: ReceiverConfig) -> Callable[[str, int, int], bytes]:
    """Bytes of a file that the running server gives, from wherever it is.

    Raises (what is returned):
        NotRunningError: there is no server: of storage nodes nobody else knows.
        TsferryError: as it refused.
    """

    def given(physical: str, begin: int, length: int) -> bytes:
        server, found = OperatorClient(config), b""
        while len(found) < length:
            at, last = begin + len(found), begin + min(length, len(found) + MOST_CONTENT) - 1
            headers = {"Range": f"bytes={at}-{last}"}
            path = f"{wire.BASE}/catalogue/content"
            piece = server.exchange("GET", path, {"path": physical}, headers, b"").body
            if not piece:
                break
            found += piece
        return found

    return given


def _note(config: ReceiverConfig, note: BackupNote) -> None:
    """Keep when this was, for `status` and alerts; a backup without that is a backup too."""
    try:
        write_backup_note(config.schema_dir, note)
    except (TsferryError, OSError) as error:
        click.echo(f"status will not know of this backup: {printable(str(error))}", err=True)


@contextmanager
def _as_it_is(config: ReceiverConfig) -> Iterator[tuple[Engine, Sequence[Tree]]]:
    """The directories as they are now, up to a commit that counts.

    Raises:
        AwayError: a data directory is away.
    """
    with look(config) as there:
        for away in there.disks.away():
            raise AwayError(str(away))
        _wait_for(config, there.engine.newest_commit)
        yield there.engine, there.trees


def _wait_for(config: ReceiverConfig, commit: int) -> None:
    """Wait until a server that runs has flushed what was read of its log."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            server = OperatorClient(config)
            if server.ask("GET", "/v1/storage", StorageView).newest >= commit:
                return
        except NotRunningError:
            return
        if time.monotonic() > end:
            raise UnreachableError(f"the server does not come to commit {commit} of its log")
        time.sleep(0.05)
