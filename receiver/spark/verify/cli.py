"""`tsferry-verify`: prove on Spark that what is loaded is what was sent."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

import common
from common.config.shared_rules import PER_MILLISECOND, TimeUnit
from common.config.units import parse_duration
from common.console.cli import Invocation
from common.console.json_option import json_option
from common.errors import UsageError
from receiver.config import ReceiverConfig
from receiver.spark.verify.verify_options import MANY_BAD, PROGRAM, VerifyOptions
from receiver.storage.reading.several_addresses import addresses_in
from receiver.storage.reading.stored_place import ReceiverAddress

__all__ = ["cli"]

_MASTER = re.compile(
    r"local(\[(\*|[1-9][0-9]*)(,[1-9][0-9]*)?\])?|local-cluster\[.+\]|yarn|(spark|k8s)://.+"
)
_EPILOG = f"""Examples: tsferry-verify --new --report /tmp/report; tsferry-verify --path
'/data/sequence/**/*.tsfile'.

{PROGRAM.exit_text}

What was found is printed in any case.
"""


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EPILOG,
)
@PROGRAM.options
@click.option("--task", metavar="ID", help="Only the files that this task loaded.")
@click.option("--new", "only_new", is_flag=True, help="Only files without a verdict, or changed.")
@click.option(
    "--older-than",
    metavar="DURATION",
    help="Only files whose last verdict is older than this (as in 30d), or missing.",
)
@click.option(
    "--path",
    "paths",
    metavar="PATH",
    multiple=True,
    help="Verify TsFiles of no receiver: a directory, a file or a glob. May be repeated.",
)
@click.option(
    "--catalog",
    metavar="URL",
    help="Verify what a receiver has copied to s3://BUCKET/PREFIX or file:///DIRECTORY, with no "
    "receiver; nobody is told.",
)
@click.option(
    "--receiver",
    metavar="URL",
    help="Of a receiver or a node that gives files to workers which find them on no disk, and "
    "have no credentials for the object store; by the token in their TSFERRY_READER_TOKEN. "
    "Of several, with commas, whichever leads is asked.",
)
@click.option(
    "--ca-cert",
    metavar="FILE",
    help="PEM file there that --receiver is checked against.",
)
@click.option(
    "--client-cert",
    metavar="FILE",
    help="PEM certificate, on the workers, that --receiver is shown, in the place of a token.",
)
@click.option("--client-key", metavar="FILE", help="PEM private key of it, likewise.")
@click.option(
    "--time-unit",
    type=click.Choice(list(PER_MILLISECOND)),
    help="Of the times in the files of --path or --catalog.  [default: ms]",
)
@click.option(
    "--time-limit",
    metavar="DURATION",
    default="30m",
    show_default=True,
    help="For one file, or for 256 MiB of a large one; then it counts as unproved.",
)
@click.option("--no-commit", is_flag=True, help="Do not tell the receiver what was found.")
@click.option(
    "--quarantine-many",
    is_flag=True,
    help=f"Quarantine even if more than half of the files, and {MANY_BAD} or more, are bad.",
)
@click.option(
    "--master", metavar="URL", help="Spark master.  [default: local[*], or spark-submit's]"
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write report.html, report.json and Parquet tables here.",
)
@json_option("receiver.spark.report.summary:Summary", text="Print the summary as one JSON object.")
@click.version_option(common.__version__, prog_name=PROGRAM.name)
@click.pass_obj
def cli(
    invocation: Invocation[ReceiverConfig],
    task: str | None,
    only_new: bool,
    older_than: str | None,
    paths: tuple[str, ...],
    catalog: str | None,
    receiver: str | None,
    ca_cert: str | None,
    client_cert: str | None,
    client_key: str | None,
    time_unit: TimeUnit | None,
    time_limit: str,
    no_commit: bool,
    quarantine_many: bool,
    master: str | None,
    report: Path | None,
    as_json: bool,
) -> int:
    """Prove that what is loaded is what was sent.

    Every page of every file is decoded. Of a file: present, size, MD5, structure, points as its
    statistics say, times in order, series as in the sender's manifest, types as in the schema, one
    owner for each device, TTL; of files together: no overlap in time within sequence, and points
    that stand in sequence and unsequence. Verdicts are committed: proved files are marked, bad ones
    go to quarantine, and are asked for again if their bytes are not what was sent. Runs beside the
    receiver, and without it.
    """
    options = VerifyOptions(
        master=_checked_master(master),
        report=_checked_report(report),
        as_json=as_json,
        limit=_duration("--time-limit", time_limit),
        commit=not no_commit,
        quarantine_many=quarantine_many,
        receiver=_checked_receiver(receiver, ca_cert, client_cert, client_key),
    )
    if paths:
        for name, given in (
            ("--task", task), ("--new", only_new), ("--older-than", older_than),
            ("--catalog", catalog), ("--receiver", receiver),
        ):  # fmt: skip
            if given:
                raise UsageError(f"{name}: not with --path, which has no catalogue")
        _packages()
        from receiver.spark.verify.running import verify_paths

        return verify_paths(paths, time_unit or "ms", options)
    if time_unit is not None and catalog is None:
        raise UsageError(
            "--time-unit: only with --path or --catalog; the receiver's configuration has it"
        )
    if only_new and older_than is not None:
        raise UsageError("--new and --older-than: expected one of them")
    age = None if older_than is None else _duration("--older-than", older_than)
    config = invocation.load().value if catalog is None else None
    if catalog is not None and not catalog.startswith(("s3://", "file:///")):
        raise UsageError(f"--catalog {catalog}: expected s3://bucket/prefix or file:///directory")
    _packages()
    from receiver.spark.verify.file_scope import FileScope
    from receiver.spark.verify.running import verify_copies, verify_receiver

    scope = FileScope(task, only_new, age)
    if config is None:
        return verify_copies(catalog or "", time_unit or "ms", scope, options)
    return verify_receiver(config, scope, options)


def _packages() -> None:
    """Fail for a missing one before anything is read."""
    import numba  # noqa: F401
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401


def _checked_master(master: str | None) -> str | None:
    if master is not None and not _MASTER.fullmatch(master):
        raise UsageError(
            f"--master {master}: no Spark master; expected local[N], local[*], spark://HOST:PORT, "
            "yarn or k8s://..."
        )
    return master


def _checked_receiver(
    url: str | None, ca_cert: str | None, cert: str | None, key: str | None
) -> ReceiverAddress | None:
    if url is None:
        if ca_cert or cert or key:
            raise UsageError("--ca-cert, --client-cert, --client-key: expected with --receiver")
        return None
    several = addresses_in(url)
    for each in several or ("",):
        if not each.startswith(("http://", "https://")) or "@" in each:
            shown = each.rpartition("@")[2]
            raise UsageError(f"--receiver {shown}: expected http://... or https://...")
    if (cert is None) is not (key is None):
        raise UsageError("--client-cert: expected with --client-key, and --client-key with it")
    return ReceiverAddress(",".join(several), ca_cert, cert, key)


def _checked_report(report: Path | None) -> Path | None:
    if report is None:
        return None
    report = report.absolute()
    if report.exists() and not report.is_dir():
        raise UsageError(f"--report {report}: is no directory")
    there = next(each for each in (report, *report.parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"--report {report}: {there} is no directory that may be written to")
    return report


def _duration(name: str, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{name} {text}: {error}; expected a duration, as in 30d or 12h") from None
    if seconds <= 0:
        raise UsageError(f"{name} {text}: expected more than nothing")
    return seconds
