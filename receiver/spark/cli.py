"""`tsferry-verify`: prove on Spark that what is loaded is what was sent."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from common.cli import Invocation, Program, emit_json, needs, run
from common.errors import UsageError
from receiver.config import ReceiverConfig

if TYPE_CHECKING:
    from receiver.spark.job import FileVerdict
    from receiver.spark.report import Summary

__all__ = ["main"]

PROGRAM = Program(
    "tsferry-verify", ReceiverConfig, "TSFERRY_RECEIVER_", Path("/etc/tsferry/receiver.toml")
)


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: tsferry-verify --config /etc/tsferry/receiver.toml --report /tmp/report. Exit "
    "codes: 0 all good; 1 problems found, or the proof could not be completed; 2 usage.",
)
@PROGRAM.options
@click.option("--task", metavar="ID", help="Only the files that this task loaded.")
@click.option(
    "--master", metavar="URL", help="Spark master.  [default: local[*], or spark-submit's]"
)
@click.option(
    "--report",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write files.parquet, problems.parquet and report.json here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object.")
@click.version_option(package_name="tsferry")
@click.pass_obj
def cli(
    invocation: Invocation[ReceiverConfig],
    task: str | None,
    master: str | None,
    report: Path | None,
    as_json: bool,
) -> int:
    """Prove that what is loaded is what was sent.

    For every committed file: present, size, MD5, structure (counts and ranges of chunks against
    the statistics of their series), series and points as loaded and as in the sender's manifest,
    devices as committed, one owner for each device; across files: no overlap in time within
    sequence. Runs beside the receiver, and without it.
    """
    config = invocation.load().value
    if report is not None and report.exists() and not report.is_dir():
        raise UsageError(f"--report {report}: is no directory")
    summary, verdicts = _verify(config, task, master)
    if report is not None:
        from receiver.spark.report import write

        write(report.absolute(), summary, verdicts)
    if as_json:
        emit_json(summary)
    else:
        from receiver.spark.report import text

        click.echo(text(summary))
        if report is not None:
            click.echo(f"report in {report}")
    return 1 if summary.bad else 0


def _verify(
    config: ReceiverConfig, task: str | None, master: str | None
) -> tuple[Summary, list[FileVerdict]]:
    from receiver.spark.catalogue import read_catalogue
    from receiver.spark.job import prove
    from receiver.spark.report import summarise
    from receiver.spark.session import start

    with needs("spark"):
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    begun = time.monotonic()
    data_dirs = [Path(each) for each in config.data_dirs]
    catalogue = read_catalogue(Path(config.schema_dir), data_dirs, task)
    spark = start(master)
    try:
        verdicts = prove(spark, catalogue.files)
    finally:
        spark.stop()
    return summarise(catalogue, verdicts, task, time.monotonic() - begun), verdicts


def main() -> None:
    """Entry point of the command."""
    sys.exit(run(cli, PROGRAM.name))


if __name__ == "__main__":
    main()
