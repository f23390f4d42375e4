"""`storage` and `restore`: the copies in an object store."""

from __future__ import annotations

import math
from collections import deque
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from common.cli import Invocation, emit_json
from common.config.upload_rules import upload_text
from common.durable import Tree
from common.errors import ConflictError, TsferryError, UsageError
from common.json_option import JsonForm, json_option
from common.terminal import counted, folded, printable, size_text, table
from common.wire import FailedFetch, FetchAnswer, FetchRequest
from receiver.cli.command_answers import (
    RestoreDone,
    SenderFile,
    StoreFindings,
    StoreNeed,
    StoreTaken,
)
from receiver.cli.showing import commit_time
from receiver.config import ReceiverConfig
from receiver.datadirs.directory_finding import adopt as adopt_directories
from receiver.datadirs.directory_finding import check_restored
from receiver.datadirs.disks import AwayError, Disks
from receiver.metadata.engine import Engine
from receiver.open_engine import check_etcd, open_engine, read_current, read_told
from receiver.operator.client import OperatorClient, ask
from receiver.operator.stored.storage import storage_in_catalogue
from receiver.operator.views.file_views import FilesPage
from receiver.operator.views.status_views import StorageView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from receiver.storage.objects.object_check import CopiesReport
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["check_copies", "restore", "storage"]

_AT_ONCE = 16


@click.group()
def storage() -> None:
    """The object store that loaded files and the log are copied to."""


@storage.command(
    epilog="Example: tsferry-receiver storage check. Exit codes: 0 all holds; 1 something does "
    "not; 2 configuration, or none is configured."
)
@json_option(StoreFindings)
@click.pass_context
def check(ctx: click.Context, as_json: bool) -> None:
    """Try everything that copies need of the store, on objects that are removed again."""
    from receiver.storage.copying import store_of
    from receiver.storage.stores.store_check import check_store

    invocation: Invocation[ReceiverConfig] = ctx.obj
    store = store_of(_configured(invocation.load().value).storage)
    try:
        found = []
        for each in check_store(store):
            found.append(each)
            if not as_json:
                click.echo(f"{'no ' if each.problem else 'yes'} {each.need}")
                if each.problem:
                    click.echo(f"    {printable(each.problem)}")
    finally:
        store.close()
    if as_json:
        findings = [StoreNeed(need=each.need, problem=each.problem) for each in found]
        emit_json(StoreFindings(findings=findings))
    if any(each.problem for each in found):
        ctx.exit(1)


@storage.command(
    epilog="Example: tsferry-receiver storage status --json. Works without a server too. Exit "
    "codes: 0 done; 2 configuration; 4 the receiver refuses."
)
@json_option(StorageView)
@click.pass_obj
def status(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """How far the copies are, and what is in their way."""
    found = ask(
        invocation.load().value,
        lambda server: server.ask("GET", "/v1/storage", StorageView),
        storage_in_catalogue,
    )
    if as_json:
        emit_json(found)
        return
    lines = {
        "store": printable(found.url or "none is configured"),
        **({"encryption": found.encryption} if found.encryption else {}),
        "problem": printable(found.problem or "none"),
        "in the store": f"{counted(found.uploaded_files, 'file')}, "
        f"{size_text(found.uploaded_bytes)}",
        "waiting": _waiting(found),
        "forgotten": _forgotten(found),
        "kept here": f"{counted(found.kept_files, 'file')}, {size_text(found.kept_bytes)}",
        "log": _log(found),
        "tree": f"up to {commit_time(found.tree, found.tree_at)}" if found.tree else "-",
        "requests": ", ".join(f"{n} {kind}" for kind, n in sorted(found.requests.items())) or "-",
        **({"cost": _cost(found)} if found.costs else {}),
        "on the disk": f"{counted(found.cached_files, 'file')}, {size_text(found.cached_bytes)} of "
        f"{size_text(found.capacity)}"
        if found.capacity is not None
        else "all stay",
        "asked for": f"{counted(found.asked_files, 'file')}, "
        f"{found.asked_files - found.fetched_files} of "
        "them were here",
        "incarnation": f"{found.incarnation or '-'}"
        + (", and another receiver has taken over" if found.fenced else ""),
    }
    for name, value in lines.items():
        click.echo(folded(f"{name + ':':14}{value}", 14))
    for path, after in found.upload.items():
        when = upload_text(math.inf if after < 0 else after / 1000)
        click.echo(f"set upload to {printable(path)}: {when}")


@storage.command(
    epilog="Example: tsferry-receiver storage takeover. Exit codes: 0 done; 1 the prefix is "
    "another engine's; 2 configuration; 4 the store does not answer."
)
@json_option(StoreTaken)
@click.pass_obj
def takeover(invocation: Invocation[ReceiverConfig], as_json: bool) -> None:
    """Make this receiver the owner of its copies again, whoever is it now.

    For a machine that was turned back to an earlier state, or a copy that is to go on in its place.
    What it has is copied from then on; the one before copies nothing any more. A server that runs
    has to be started again.
    """
    from receiver.storage.copying import store_of
    from receiver.storage.stores.incarnation import next_incarnation
    from receiver.storage.stores.owned_prefix import own_prefix

    config = _configured(invocation.load().value)
    with read_current(config) as engine:
        uuid = engine.uuid
    store = store_of(config.storage)
    try:
        own_prefix(store, uuid)
        with Tree(config.schema_dir) as home:
            taken = next_incarnation(store, home, uuid)
    finally:
        store.close()
    if as_json:
        emit_json(StoreTaken(engine=uuid, incarnation=taken.number))
    else:
        click.echo(f"incarnation {taken.number} of engine {uuid} is this receiver's")


def _waiting(found: StorageView) -> str:
    text = f"{counted(found.waiting_files, 'file')}, {size_text(found.waiting_bytes)}"
    if found.unreadable_files:
        text += f", {found.unreadable_files} of them not there, not what was loaded, or refused"
    if found.oldest_waiting:
        text += f", the oldest since {commit_time(found.oldest_waiting, found.oldest_waiting_at)}"
    return text


def _cost(found: StorageView) -> str:
    parts = ", ".join(f"{kind} {cost:.4f}" for kind, cost in sorted(found.costs.items()))
    return f"{sum(found.costs.values()):.4f} {printable(found.currency)} ({parts})"


def _forgotten(found: StorageView) -> str:
    text = f"{counted(found.ended_files, 'file')}, whose objects go after history and grace"
    return text if found.staying is None else f"{text}; refused: {printable(found.staying)}"


def _log(found: StorageView) -> str:
    if not found.shipped:
        return "-"
    text = f"up to {commit_time(found.shipped, found.shipped_at)}"
    if found.behind:
        text += f", behind since {commit_time(found.behind, found.behind_at)}"
    return text


@storage.command(
    epilog="Example: tsferry-receiver storage fetch 'sequence/root.sg/0/2931/*'. Exit codes: 0 all "
    "of them are here; 2 configuration; 3 some did not come: they are named; 4 the receiver does "
    "not run or refuses."
)
@click.argument("pattern", nargs=-1, required=True)
@json_option(FetchAnswer)
@click.pass_obj
def fetch(invocation: Invocation[ReceiverConfig], pattern: tuple[str, ...], as_json: bool) -> int:
    """Bring files that are in the object store only back into the data directories.

    PATTERN is of physical paths, as `files` has them; * stands for any text. What is fetched
    may have to make room again, when all else is needed more.
    """
    from common.progress_line import showing_progress
    from common.step_progress import StepProgress

    server = OperatorClient(invocation.load().value)
    rows = server.ask_all("/v1/files", FilesPage, lambda page: page.files)
    wanted = [each for each in rows if any(fnmatchcase(each.physical, one) for one in pattern)]
    remote = deque(each.physical for each in wanted if each.stored and each.data_dir is None)
    here: list[str] = []
    failed: list[FailedFetch] = []
    with showing_progress(as_json) as told:
        total = len(remote)
        while remote:
            told(StepProgress("files", len(here) + len(failed), total, 0, 0))
            asked = [remote.popleft() for _ in range(min(len(remote), _AT_ONCE))]
            answer = server.ask(
                "POST", "/v1/files/fetch", FetchAnswer, body=FetchRequest(paths=asked)
            )
            here += answer.here
            failed += answer.failed
            remote.extendleft(reversed(answer.coming))
    if as_json:
        emit_json(FetchAnswer(here=here, failed=failed))
    else:
        for each in here:
            click.echo(f"{printable(each)}: here")
        for one in failed:
            click.echo(f"{printable(one.path)}: {printable(one.reason)}", err=True)
        click.echo(
            f"{counted(len(wanted), 'file matches', 'files match')}; {len(here)} came, "
            f"{len(failed)} did not"
        )
    return 3 if failed or not wanted else 0


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
    as_json: bool,
) -> None:
    """Make the directories of this configuration again from an object store, or a backup.

    The old receiver, should it still run somewhere, copies nothing from then on. A restore that
    was cut off goes on when it is said again. --check reads all of the log, and asks the store for
    each file that readers see.
    """
    if deep and not only_check:
        raise UsageError("--deep: expected with --check")
    if on_demand and (url is not None or only_check):
        raise UsageError(
            "--on-demand: expected without --from and --check; files stay in the store "
            "of storage.url"
        )
    from common.progress_line import showing_progress
    from receiver.storage.cache.file_restore import restore_files
    from receiver.storage.copying import store_of
    from receiver.storage.log_copies.log_succession import put_fork
    from receiver.storage.log_copies.metadata_restore import restore_metadata
    from receiver.storage.stores.incarnation import forget_store, next_incarnation
    from receiver.storage.stores.owned_prefix import engine_in
    from receiver.storage.stores.store_manifests import StoreManifest

    invocation: Invocation[ReceiverConfig] = ctx.obj
    config = _configured(invocation.load().value, url)
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
                found = restore_files(store, engine, trees, keep=keep, most=most, told=told)
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
    from common.progress_line import showing_progress
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
        _show_findings(report)
    if not report.good:
        ctx.exit(1)


def check_copies(
    config: ReceiverConfig,
    *,
    repair: bool,
    adopt: bool,
    deep: bool,
    without_nodes: bool,
    as_json: bool,
) -> int:
    """`fsck --storage`: check what is in the store, and put it right; the exit code."""
    from common.progress_line import showing_progress
    from receiver.storage.copying import store_of
    from receiver.storage.objects.object_adoption import adopt_objects
    from receiver.storage.objects.object_repair import OF_NODES, examine_store, repair_store
    from receiver.storage.objects.scrubbing import note_bad
    from receiver.storage.stores.incarnation import own_incarnation
    from receiver.storage.stores.owned_prefix import own_prefix

    store = store_of(_configured(config).storage)
    try:
        changes = repair or adopt
        engine = open_engine(config) if changes else read_told(config)
        with (
            engine,
            Disks.look(config, engine) as disks,
            Tree(config.schema_dir) as home,
            showing_progress(as_json) as told,
        ):
            report = examine_store(
                engine, store, disks.trees, deep=deep, without_nodes=without_nodes, told=told
            )
            if changes and report.found:
                for away in disks.away():  # what is not mounted is not bad
                    raise AwayError(str(away))
                own_prefix(store, engine.uuid)
                owner = own_incarnation(store, home, engine.uuid, notes=engine.notes)
                if adopt:
                    report = adopt_objects(engine, store, owner, report, told)
                if repair:
                    report = repair_store(engine, store, owner, disks.trees, report, told=told)
                    note_bad(home, [it.physical for it in report.found if it.repair == OF_NODES])
    finally:
        store.close()
    if as_json:
        emit_json(report)
    else:
        _show_findings(report)
        if not report.good and not changes:
            click.echo("nothing was changed; with the server down, --repair puts right what can be")
    return 0 if report.good else 1


def _show_findings(report: CopiesReport) -> None:
    """Write what was found in a store."""
    rows = [
        (
            each.kind,
            each.path or each.key,
            each.detail,
            f"done: {each.repair}" if each.repaired else each.repair or "-",
        )
        for each in report.found
    ]
    if rows:
        click.echo(table(("KIND", "OBJECT", "FOUND", "REPAIR"), rows))
    click.echo(
        f"{counted(report.files, 'file')}, {size_text(report.bytes)} looked for, up to commit "
        f"{report.commit}; {len(rows)} findings (engine {printable(report.engine)})"
    )
    if report.sizes_only:
        click.echo("by their sizes alone, for a directory knows no digests; --deep reads the bytes")


def _configured(config: ReceiverConfig, url: str | None = None) -> ReceiverConfig:
    if url is not None:
        config = replace(config, storage=replace(config.storage, url=url))
    if config.storage.url is None:
        raise UsageError("no store is configured: storage.url")
    return config


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
