"""A run of `tsferry-verify` from its options to its exit code."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from common.console.cli import emit_json
from common.console.terminal import counted, printable
from common.errors import TsferryError
from receiver.config import ReceiverConfig, StorageConfig
from receiver.load.upkeep.verdicts import Verdict
from receiver.spark.catalogue_opening import store_at
from receiver.spark.finder import list_files, shown
from receiver.spark.report import Delivery, summarise, text, write
from receiver.spark.verify.committed import CommittedFiles
from receiver.spark.verify.delivery import deliver, deliver_merges, tell_crowded
from receiver.spark.verify.examining.part_rows import Settings
from receiver.spark.verify.file_scope import FileScope
from receiver.spark.verify.job_progress import JobProgress
from receiver.spark.verify.verify_options import MANY_BAD, PROGRAM
from receiver.spark.verify.verifying import (
    Run,
    bad_merges,
    crowded_of,
    proved_merges,
    verdicts_of,
    verify_catalogue,
    verify_plain,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from common.config.shared_rules import TimeUnit
    from receiver.spark.report.results import Verification
    from receiver.spark.verify.examining.parts import Expected
    from receiver.spark.verify.verify_options import VerifyOptions

__all__ = ["verify_copies", "verify_paths", "verify_receiver"]


def verify_copies(url: str, unit: TimeUnit, scope: FileScope, options: VerifyOptions) -> int:
    """Verify what a receiver has copied to a store, and tell nobody; returns the exit code.

    How the store is spoken to is said as AWS's own tools are told.
    """
    there = store_at(url, os.environ)
    config = ReceiverConfig(
        schema_dir=Path("/"),
        data_dirs=(),
        time_unit=unit,
        storage=StorageConfig(
            url=there.url,
            endpoint=there.endpoint,
            region=there.region,
            path_style=there.path_style,
        ),
    )
    return verify_receiver(config, scope, replace(options, commit=False), copies=True)


def verify_receiver(
    config: ReceiverConfig, scope: FileScope, options: VerifyOptions, *, copies: bool = False
) -> int:
    """Verify what a receiver has loaded, and tell it; returns the exit code.

    Args:
        config: of the receiver.
        scope: which files.
        options: what else was asked for.
        copies: of its copies in the store alone.
    """
    begun, started = time.time(), time.monotonic()
    progress = JobProgress()
    with (
        CommittedFiles(config, scope, receiver=options.receiver, copies=copies) as catalogue,
        _session(options, progress, needed=not catalogue.is_idle) as spark,
    ):
        settings = _settings(options, config.time_unit)
        run = Run(spark, settings, progress, str(scope), begun, started)
        outcome, job = verify_catalogue(run, catalogue)
        with job:
            if not options.commit:
                return _finish(outcome, None, options)
            expected = [each.expected for each in catalogue.files]
            try:
                delivery = _commit(config, outcome, expected, options)
                tell_crowded(config, crowded_of(job, catalogue))
            except TsferryError:
                _finish(outcome, None, options)  # what took hours to find out is not lost
                raise
            return _finish(outcome, delivery, options)


def verify_paths(paths: Sequence[str], unit: str, options: VerifyOptions) -> int:
    """Verify files of no receiver; returns the exit code."""
    begun, started = time.time(), time.monotonic()
    progress = JobProgress()
    files = list_files(paths, option="--path", required=True)
    with _session(options, progress, needed=True) as spark:
        settings = _settings(options, unit)
        scope = f"files of {', '.join(map(shown, paths))}"
        run = Run(spark, settings, progress, scope, begun, started)
        outcome, job = verify_plain(run, files)
        with job:
            return _finish(outcome, None, options)


def _settings(options: VerifyOptions, unit: str) -> Settings:
    return Settings(unit=unit, keep_chunks=options.report is not None, limit=options.limit)


@contextmanager
def _session(
    options: VerifyOptions, progress: JobProgress, *, needed: bool
) -> Iterator[SparkSession | None]:
    """A Spark session; none where there is nothing to do."""
    if not needed:
        yield None
        return
    from receiver.spark.verify.session import start, was_interrupted

    progress.say("starting Spark")
    spark = start(options.master)
    progress.clear()
    try:
        yield spark
    except Exception as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        raise
    finally:
        progress.clear()
        spark.stop()


def _commit(
    config: ReceiverConfig,
    outcome: Verification,
    expected: Sequence[Expected],
    options: VerifyOptions,
) -> Delivery:
    """Tell the receiver, but for a verdict on most of what it has: that is a human's to confirm.

    When most files are bad at once, a disk that shows something else or a fault of ours is likelier
    than so many bad files; and all of them would be taken from readers and sent again.
    """
    verdicts = verdicts_of(outcome.files, expected)
    bad = sum(1 for each in verdicts if each.bad is not None)
    if bad >= MANY_BAD and 2 * bad > len(verdicts) and not options.quarantine_many:
        click.echo(
            f"{PROGRAM.name}: {bad} of {counted(len(verdicts), 'file is', 'files are')} "
            "bad, and none was put into "
            "quarantine: is this the right disk? --quarantine-many does it all the same",
            err=True,
        )
        verdicts = [Verdict(*each) for each in verdicts if each.bad is None]
    done = deliver(config, verdicts)
    merges = deliver_merges(config, bad_merges(outcome), proved_merges(outcome))
    total = done._replace(dissolved=merges.dissolved, merges_verified=merges.merges_verified)
    return Delivery(**total._asdict())


def _finish(outcome: Verification, delivery: Delivery | None, options: VerifyOptions) -> int:
    summary = summarise(outcome, delivery)
    if outcome.unlooked:
        click.echo(
            f"{PROGRAM.name}: {outcome.unlooked} more pairs of files with a common device were not "
            "looked at for duplicates",
            err=True,
        )
    if options.as_json:
        emit_json(summary)
    else:
        click.echo(text(summary))
    if options.report is not None:  # last: whatever its disk does, what was found has been said
        write(options.report, summary, outcome)
        if not options.as_json:
            click.echo(printable(f"report in {options.report}"))
    return 0 if summary.good else 1
