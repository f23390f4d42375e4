"""`restore`: a receiver is made again of the copies in an object store."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from common.console.cli import Invocation, emit_json
from common.console.json_option import JsonForm, json_option
from common.console.terminal import counted, printable, size_text
from common.durable import Tree
from common.errors import ConflictError, TsferryError, UsageError
from receiver.cli.command_answers import (
    RestoreDone,
    SenderFile,
)
from receiver.cli.copy_commands.checked_copies import show_findings, with_store
from receiver.config import ReceiverConfig
from receiver.datadirs.directory_finding import adopt as adopt_directories
from receiver.datadirs.directory_finding import check_restored
from receiver.metadata.engine import Engine
from receiver.open_engine import check_etcd, open_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["restore"]


@click.command(
    epilog="Example: tsferry-receiver --config receiver.toml restore. Exit codes: 0 done; 2 "
    "configuration, or something is there already; 3 files were not in the store: they are named, "
    "and asked for again from their senders; 4 the store does not answer: say it again. With "
    "--check: 0 all is there; 1 something is missing or damaged."
)
@click.option("--from", "url", help="The store, in place of storage.url.")
@click.option("--at", type=int, help="Commit ts of the last commit that may be in it.")
@click.option(
    "--check", "only_check", is_flag=True, help="Only see whether it could be; nothing is made."
)
@click.option("--deep", is_flag=True, help="With --check: read the bytes of all files too.")
@click.option(
    "--on-demand", is_flag=True, help="Leave files in the store: they come when they are needed."
)
@click.option(
    "--without-nodes",
    is_flag=True,
    help="Storage nodes are gone too: ask senders for what is not in the store.",
)
@json_option(
    RestoreDone, JsonForm("receiver.storage.objects.object_check:CopiesReport", "with `--check`")
)
@click.pass_context
def restore(
    ctx: click.Context,
    url: str | None,
    at: int | None,
    only_check: bool,
    deep: bool,
    on_demand: bool,
    without_nodes: bool,
    as_json: bool,
) -> None:
    """Make the directories of this configuration again from an object store, or a backup.

    The old receiver, should it still run somewhere, copies nothing from then on. A restore that
    was cut off goes on when it is said again. --check reads all of the log, and asks the store for
    each file that readers see.

    What storage nodes are to have and the store lacks stays as it is, for the server asks them;
    with --without-nodes its senders are asked for it.
    """
    if deep and not only_check:
        raise UsageError("--deep: expected with --check")
    if without_nodes and only_check:
        raise UsageError("--without-nodes: expected without --check, which asks the store alone")
    if on_demand and (url is not None or only_check):
        raise UsageError(
            "--on-demand: expected without --from and --check; files stay in the store "
            "of storage.url"
        )
    from common.console.progress_line import showing_progress
    from receiver.storage.cache.file_restore import restore_files
    from receiver.storage.copying import store_of
    from receiver.storage.log_copies.log_succession import put_fork
    from receiver.storage.log_copies.metadata_restore import restore_metadata
    from receiver.storage.stores.incarnation import forget_store, next_incarnation
    from receiver.storage.stores.owned_prefix import engine_in
    from receiver.storage.stores.store_manifests import StoreManifest

    invocation: Invocation[ReceiverConfig] = ctx.obj
    config = with_store(invocation.load().value, url)
    config.must_have_directories()
    store = store_of(config.storage)
    again: Sequence[str] = ()
    if only_check:
        _check_restore(ctx, config, store, at, deep=deep, as_json=as_json)
        return
    try:
        uuid = engine_in(store)
        here = _restored_to(config, uuid, at)
        check_restored(config, uuid)
        check_etcd(config, uuid, may_have_commits=here is not None)
        if here is not None:
            newest = StoreManifest.newest(store, uuid)
            if at is None and newest is not None and newest.lsn > here:
                raise UsageError(
                    f"{config.schema_dir} is older than the copies (LSN {here}, they have "
                    f"{newest.lsn}): move it away and say it once more, or `storage takeover` if "
                    "what it lacks is to be given up"
                )
            with Tree(config.schema_dir) as home:
                next_incarnation(store, home, uuid)
        else:
            try:
                with showing_progress(as_json) as told:
                    made = restore_metadata(
                        store, uuid, config.schema_dir, at=at, take_over=True, told=told
                    )
                    here, again = made.lsn, made.deleted
            except ConflictError as error:
                raise UsageError(error.message) from error
        with open_engine(config) as engine, Tree(config.schema_dir) as home:
            if engine.uuid != uuid:
                raise ConflictError(f"etcd has another engine by now, {engine.uuid}")
            with engine.reading() as state:
                there = (state.files.get(each) for each in again)
                visible = [row for row in there if row is not None and row.visible]
            put_fork(engine, store, home, restored=here)
            adopt_directories(config, uuid)
            with ExitStack() as stack:
                trees = [stack.enter_context(Tree(each)) for each in config.data_dirs]
                keep = config.limits.min_free_bytes
                capacity = config.storage.capacity
                most = None if capacity is None else int(capacity * config.storage.evict_to)
                most = 0 if on_demand else most
                told = stack.enter_context(showing_progress(as_json))
                found = restore_files(
                    store, engine, trees, keep=keep, most=most, without_nodes=without_nodes,
                    told=told,
                )  # fmt: skip
            put_fork(engine, store, home, restored=here)  # what was asked for again, too
            if url is not None:
                forget_store(home, uuid, engine.notes)
    finally:
        store.close()
    if as_json:
        emit_json(
            RestoreDone(
                engine=uuid,
                fetched=found.fetched,
                bytes=found.bytes,
                there=found.there,
                left=found.left,
                at_nodes=found.at_nodes,
                lacking=[SenderFile(sender=sender, path=path) for sender, path in found.lacking],
                given_up=[SenderFile(sender=sender, path=path) for sender, path in found.given_up],
                deleted_later=[SenderFile(sender=row.sender, path=row.path) for row in visible],
            )
        )
    else:
        click.echo(
            f"engine {uuid}: {counted(found.fetched, 'file')} ({size_text(found.bytes)}) fetched, "
            f"{found.there} were there"
        )
        if found.left:
            click.echo(
                f"{counted(found.left, 'file stays', 'files stay')} in the store until they "
                "are needed"
            )
        if found.at_nodes:
            click.echo(
                f"{counted(found.at_nodes, 'file is', 'files are')} not in the store, and storage "
                "nodes are to have them: with `serve`, `copies status` says which none has"
            )
        for sender, path in found.lacking:
            click.echo(f"not in the store: {printable(path)} of {sender}")
        for sender, path in found.given_up:
            click.echo(
                f"not in the store, and other files give its points: {printable(path)} of {sender}"
            )
        for row in visible:
            click.echo(
                "visible again, and an operator deleted it later: "
                f"{printable(row.path)} of {row.sender}"
            )
        if visible:
            click.echo(
                f"{counted(len(visible), 'file is', 'files are')} visible with the next `serve` "
                f"that an operator deleted after {at}; what is to go has to be deleted once more"
            )
    if found.lacking:
        ctx.exit(3)


def _check_restore(
    ctx: click.Context,
    config: ReceiverConfig,
    store: ObjectStore,
    at: int | None,
    *,
    deep: bool,
    as_json: bool,
) -> None:
    from common.console.progress_line import showing_progress
    from receiver.storage.restore_check import check_restore

    scratch = config.schema_dir.with_name(f"{config.schema_dir.name}.checking")
    try:
        with showing_progress(as_json) as told:
            report = check_restore(store, scratch, at=at, deep=deep, told=told)
    finally:
        store.close()
    if as_json:
        emit_json(report)
    else:
        show_findings(report)
    if not report.good:
        ctx.exit(1)


def _restored_to(config: ReceiverConfig, uuid: str, at: int | None) -> int | None:
    """LSN of the newest commit of the metadata, if it was restored by a call before this one.

    Raises:
        UsageError: another engine is there, or this one with commits of after a moment.
    """
    from receiver.storage.cache.file_restore import is_of_restore

    try:
        with Engine.read_only(config.schema_dir) as engine:
            if engine.uuid != uuid:
                raise UsageError(f"{config.schema_dir} has another engine, {engine.uuid}")
            behind = () if at is None else engine.log_since(at)
            if not all(map(is_of_restore, behind)):
                raise UsageError(
                    f"{config.schema_dir} has commits of after {at}; a restore takes nothing back "
                    "of what is there: move it away and say it once more"
                )
            return engine.published().lsn
    except UsageError:
        raise
    except TsferryError:
        return None
