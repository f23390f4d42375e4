"""`fsck --storage`, and what it and `restore --check` show of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from common.console.cli import emit_json
from common.console.terminal import counted, printable, size_text, table
from common.durable import Tree
from common.errors import UsageError
from receiver.config import ReceiverConfig
from receiver.datadirs.disks import AwayError, Disks
from receiver.open_engine import open_engine, read_told

if TYPE_CHECKING:
    from receiver.storage.objects.object_check import CopiesReport

__all__ = ["check_copies", "show_findings", "with_store"]


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
    from common.console.progress_line import showing_progress
    from receiver.storage.copying import store_of
    from receiver.storage.objects.object_adoption import adopt_objects
    from receiver.storage.objects.object_repair import OF_NODES, examine_store, repair_store
    from receiver.storage.objects.scrubbing import note_bad
    from receiver.storage.stores.incarnation import own_incarnation
    from receiver.storage.stores.owned_prefix import own_prefix

    store = store_of(with_store(config).storage)
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
        show_findings(report)
        if not report.good and not changes:
            click.echo("nothing was changed; with the server down, --repair puts right what can be")
    return 0 if report.good else 1


def show_findings(report: CopiesReport) -> None:
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


def with_store(config: ReceiverConfig, url: str | None = None) -> ReceiverConfig:
    """The configuration with a store, another one if `url` says so.

    Raises:
        UsageError: none is configured.
    """
    if url is not None:
        config = replace(config, storage=replace(config.storage, url=url))
    if config.storage.url is None:
        raise UsageError("no store is configured: storage.url")
    return config
