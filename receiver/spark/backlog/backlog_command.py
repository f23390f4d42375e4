"""The command that has a cluster do background tasks of a receiver."""

from __future__ import annotations

import click

from common.config.units import parse_size
from common.console.terminal import counted
from common.errors import TsferryError, UsageError

__all__ = ["main"]


@click.command(
    epilog="Example: spark-submit --master spark://master:7077 "
    "--conf spark.executorEnv.TSFERRY_WORKER_TOKEN_FILE=/etc/tsferry/worker.token "
    ".../receiver/spark/backlog/__main__.py --from https://centre.example:8585 --workers 16. Exit "
    "codes: 0 nothing waits any more, or nothing that can be done now; 1 Spark gave it up; 2 wrong "
    "usage."
)
@click.option(
    "--from",
    "url",
    required=True,
    metavar="URL",
    help="Of the receiver; or, with commas, of all that may be it: whichever leads is asked.",
)
@click.option("--workers", type=click.IntRange(min=1), required=True, help="At most so many.")
@click.option("--kinds", default="merge,prove", show_default=True, help="What to do, by commas.")
@click.option("--ca-cert", help="PEM file, on the workers, that the receiver is checked against.")
@click.option("--token-file", help="On the workers, with the token of a worker.")
@click.option("--data-dir", "data_dirs", multiple=True, help="Of the receiver, seen by workers.")
@click.option("--memory", default="1GiB", show_default=True, help="For merging, each worker.")
@click.option("--store", is_flag=True, help="Read from the receiver's object store, where it can.")
@click.option("--master", help="Of Spark; what spark-submit says, or local[*].")
def main(
    url: str,
    workers: int,
    kinds: str,
    ca_cert: str | None,
    token_file: str | None,
    data_dirs: tuple[str, ...],
    memory: str,
    store: bool,
    master: str | None,
) -> None:
    """Do the background tasks of the receiver at URL on the workers of a Spark cluster.

    Each worker has the token of a worker of the receiver in TSFERRY_WORKER_TOKEN, or in a file that
    TSFERRY_WORKER_TOKEN_FILE names.
    """
    from receiver.executor.work_kinds import WORK_KINDS
    from receiver.spark.backlog.task_backlog import work_off
    from receiver.spark.verify.session import SparkFailedError, start

    wanted = [each.strip() for each in kinds.split(",") if each.strip()]
    if not wanted or any(each not in WORK_KINDS for each in wanted):
        raise UsageError(f"--kinds {kinds}: expected {', '.join(WORK_KINDS)}")
    limit = parse_size(memory)
    spark = start(master, name="tsferry-backlog")
    try:
        done = work_off(
            spark,
            url,
            workers=workers,
            kinds=wanted,
            ca_cert=ca_cert,
            token_file=token_file,
            data_dirs=data_dirs,
            memory=limit,
            store=store,
        )
    except TsferryError:
        raise
    except Exception as error:  # of Spark's libraries: its text is asked of Java
        raise SparkFailedError.of(error) from error
    finally:
        spark.stop()
    for each in done:
        click.echo(f"{each.host}: {counted(each.tasks, 'task')}")
