"""`storage`: the copies in an object store."""

from __future__ import annotations

import math
from collections import deque
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from common.config.upload_rules import upload_text
from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.terminal import counted, folded, printable, size_text
from common.durable import Tree
from common.wire import FailedFetch, FetchAnswer, FetchRequest
from receiver.cli.command_answers import (
    StoreFindings,
    StoreNeed,
    StoreTaken,
)
from receiver.cli.copy_commands.checked_copies import with_store
from receiver.cli.showing import commit_time
from receiver.config import ReceiverConfig
from receiver.open_engine import read_current
from receiver.operator.client import OperatorClient, ask
from receiver.operator.stored.storage import storage_in_catalogue
from receiver.operator.views.file_views import FilesPage
from receiver.operator.views.status_views import StorageView

if TYPE_CHECKING:
    pass

__all__ = ["storage"]

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
    store = store_of(with_store(invocation.load().value).storage)
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

    config = with_store(invocation.load().value)
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
    from common.console.progress_line import showing_progress
    from common.console.step_progress import StepProgress

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
