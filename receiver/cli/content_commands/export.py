"""`export`: committed files, merged, as a directory that a database loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from common.config.units import parse_size
from common.console.cli import Invocation, emit_json
from common.console.json_option import json_option
from common.console.progress_line import showing_progress
from common.console.step_progress import StepProgress
from common.console.terminal import counted, printable, size_text
from common.errors import UsageError
from receiver.config import ReceiverConfig

if TYPE_CHECKING:
    from receiver.exporting.export_run import ExportManifest

__all__ = ["export"]


@click.command(
    epilog="Example: tsferry-receiver export /srv/export --path 'root.plant.**' --from "
    "2026-01-01T00:00:00Z --version 3. Works beside a running server too. Exit codes: 0 done; 1 an "
    "input is gone, types do not go together, or an output is not what was merged; 2 wrong usage, "
    "or there is nothing to export; 3 an input is damaged, or the disk is full; 4 the object store "
    "or the receiver does not answer; 130 interrupted. Said again it goes on."
)
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--path", "pattern", default="root.**", help="Pattern of series (default root.**).")
@click.option("--from", "start", help="First time: a moment, or an integer in the files' unit.")
@click.option("--to", "end", help="Last time, inclusive.")
@click.option("--at", help="As of a commit timestamp or a moment (default now).")
@click.option(
    "--version",
    type=click.Choice(["3", "4"]),
    default="4",
    help="Of the files: 4 for servers from 2.0 on (default), 3 for 0.12 to 1.x.",
)
@click.option(
    "--file-bytes", default="512MiB", help="Of inputs, about, that make one file (512MiB)."
)
@click.option(
    "--file-points",
    type=click.IntRange(min=1),
    default=1 << 62,
    help="A file ends with the device that brings it to so many points.  [default: no limit]",
)
@click.option(
    "--catalog",
    help="Read another receiver: its schema directory or configuration, or the URL of the object "
    "store that has its copies.",
)
@click.option(
    "--receiver",
    metavar="URL",
    help="Running receiver that gives files which are on no disk here and in no object store, as "
    "those that only storage nodes have; by a reader's token in TSFERRY_READER_TOKEN.  [default: "
    "the one of this configuration, if it runs]",
)
@click.option("--ca-cert", metavar="FILE", help="PEM file that --receiver is checked against.")
@click.option(
    "--client-cert",
    metavar="FILE",
    help="PEM certificate that --receiver is shown in the place of a token.",
)
@click.option("--client-key", metavar="FILE", help="PEM private key of it.")
@click.option("--dry-run", is_flag=True, help="Only say what would be exported.")
@json_option("receiver.exporting.export_run:ExportManifest")
@click.pass_obj
def export(
    invocation: Invocation[ReceiverConfig],
    directory: Path,
    pattern: str,
    start: str | None,
    end: str | None,
    at: str | None,
    version: str,
    file_bytes: str,
    file_points: int,
    catalog: str | None,
    receiver: str | None,
    ca_cert: str | None,
    client_cert: str | None,
    client_key: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Write committed files, merged, to DIRECTORY, which a database of Apache IoTDB loads as it is.

    Each point is there once, from the highest file that has it, without what was deleted: what
    readers of the receiver see, as of one commit. schema.sql has the statements that make storage
    groups and series (tables.sql those of tables), manifest.json what each file has. Nothing gets
    its name before it was decoded again and compared, point by point, with what was merged.

    DIRECTORY must be new or empty, or have what the same call began before it was cut off.
    """
    from receiver.exporting import export_run
    from receiver.exporting.wanted_points import WantedPoints
    from receiver.metadata.model.paths import parse_pattern
    from receiver.operator.client import running_server
    from receiver.spark.catalogue_opening import open_catalogue
    from receiver.spark.local_catalogue import LocalCatalogue
    from receiver.spark.source.read_plans.selection import TimeRange
    from receiver.spark.source.read_plans.source_options import bounds, parse_options
    from receiver.storage.reading.stored_place import StoreAddress

    config = invocation.load().value
    if catalog is None:
        config.must_have_directories()
    given = {"startTime": start, "endTime": end, "asOf": at, "timeUnit": config.time_unit}
    where = catalog or str(config.schema_dir)
    try:
        options = parse_options(
            {"catalog": where, **{name: text for name, text in given.items() if text is not None}}
        )
    except UsageError as error:
        raise UsageError(_as_said_here(error.message)) from error
    span = TimeRange().cut(*bounds(options))
    if span.is_empty:
        raise UsageError(f"--from {start}, --to {end}: no time lies between them")
    wanted = WantedPoints(parse_pattern(pattern), span)
    moment = options.as_of
    if at is None and not dry_run:
        moment = export_run.unfinished_commit(directory)
    data_dirs = () if catalog else tuple(map(str, config.data_dirs))
    store = None if catalog else StoreAddress.of(config.storage)
    of = None if catalog else config
    token = None
    if receiver is None and (ca_cert or client_cert or client_key):
        raise UsageError("--ca-cert, --client-cert, --client-key: expected with --receiver")
    if (client_cert is None) is not (client_key is None):
        raise UsageError("--client-cert: expected with --client-key, and --client-key with it")
    if receiver is None and of is not None and (server := running_server(of)) is not None:
        receiver, token, ca_cert = server
    with open_catalogue(
        where,
        data_dirs=data_dirs,
        token=token,
        ca_cert=ca_cert,
        client_cert=client_cert,
        client_key=client_key,
        store=store,
        receiver=receiver,
        config=of,
    ) as catalogue:
        if not isinstance(catalogue, LocalCatalogue):
            raise UsageError(
                f"--catalog {where}: expected a schema directory, a configuration file, or the URL "
                "of an object store; a running server does not say its schema of the past"
            )
        request = export_run.ExportRequest(
            engine=catalogue.uuid,
            commit=catalogue.at(moment),
            pattern=wanted.pattern.text,
            start=span.start,
            end=span.end,
            version=int(version),
            file_bytes=_size(file_bytes),
            file_points=file_points,
        )
        if dry_run:
            _, manifest = export_run.planned(catalogue, wanted, request)
        else:
            with showing_progress(as_json) as told:
                manifest = export_run.export_to(
                    directory,
                    catalogue,
                    wanted,
                    request,
                    lambda done, of: told(StepProgress("merging", done, of, 0, 0)),
                )
    if as_json:
        emit_json(manifest)
    else:
        _tell(manifest, directory, dry_run)
    return 0


def _size(text: str) -> int:
    try:
        size = parse_size(text)
    except ValueError as error:
        raise UsageError(f"--file-bytes {text}: expected a size such as 512MiB") from error
    if size < 1 << 10:
        raise UsageError(f"--file-bytes {text}: expected 1KiB or more")
    return size


def _tell(manifest: ExportManifest, directory: Path, dry_run: bool) -> None:
    inputs = f"{counted(manifest.inputs, 'file')} of {size_text(manifest.input_bytes)}"
    if dry_run:
        click.echo(f"{inputs} would be merged, as of commit {manifest.request.commit}")
        return
    click.echo(
        printable(
            f"{inputs} merged to {len(manifest.files)} of {size_text(manifest.bytes)} in "
            f"{directory}: {counted(manifest.points, 'point')}, as of commit "
            f"{manifest.request.commit}"
        )
    )


def _as_said_here(message: str) -> str:
    """What the options of Spark's source say, by the names that they have here."""
    for name, flag in (("startTime", "--from"), ("endTime", "--to"), ("asOf", "--at")):
        message = message.replace(f"option {name} = ", f"{flag} ")
    return message
