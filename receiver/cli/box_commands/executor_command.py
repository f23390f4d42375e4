"""`work`: do background tasks of a receiver on this machine."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from common.config.units import parse_size
from common.console.cli import Invocation
from common.console.logs import LogConfig
from common.errors import Transient, UsageError
from receiver.config import ReceiverConfig

if TYPE_CHECKING:
    from types import FrameType

    from receiver.executor.task_executor import Executor

__all__ = ["work"]

_NICE = 19


@click.command(
    epilog="Example: tsferry-receiver work --from https://centre.example:8585 --kinds merge, with "
    "TSFERRY_WORKER_TOKEN in the environment. Needs no configuration. Exit codes: 0 stopped by "
    "SIGTERM or SIGINT, or nothing waits (--once); 2 wrong usage; 4 the receiver refuses the "
    "token, or does not answer (--once)."
)
@click.option(
    "--from",
    "url",
    required=True,
    metavar="URL",
    help="Of the receiver; or, with commas, of all that may be it: whichever leads is asked.",
)
@click.option(
    "--token",
    envvar="TSFERRY_WORKER_TOKEN",
    help="Of a worker (`token create --role worker`). Others of this machine see what is on a "
    "command line: better in TSFERRY_WORKER_TOKEN.",
)
@click.option("--ca-cert", help="PEM file that the receiver is checked against.")
@click.option(
    "--client-cert",
    type=click.Path(path_type=Path, dir_okay=False),
    help="PEM certificate that the receiver is shown, in the place of a token.",
)
@click.option(
    "--client-key",
    type=click.Path(path_type=Path, dir_okay=False),
    help="PEM private key of it.",
)
@click.option("--kinds", default="merge,prove", show_default=True, help="What to do, by commas.")
@click.option(
    "--data-dir",
    "data_dirs",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="A data directory of the receiver that this machine sees: files that lie there are not "
    "fetched. May be given several times.",
)
@click.option(
    "--store",
    is_flag=True,
    help="Read files from the receiver's object store, where that has them, with the credentials "
    "of this environment.",
)
@click.option("--once", is_flag=True, help="End when nothing waits.")
@click.option("--every", default=5.0, show_default=True, help="Seconds between two looks.")
@click.option(
    "--memory",
    default="1GiB",
    show_default=True,
    help="That it, and what it merges with, may take.",
)
@click.pass_obj
def work(
    invocation: Invocation[ReceiverConfig],
    url: str,
    token: str | None,
    ca_cert: str | None,
    client_cert: Path | None,
    client_key: Path | None,
    kinds: str,
    data_dirs: tuple[Path, ...],
    store: bool,
    once: bool,
    every: float,
    memory: str,
) -> int:
    """Take background tasks of the receiver at URL, one after another, and do them here.

    It reads files from the receiver, into TMPDIR while they are needed, and sends merged ones back.
    Any number may run, on any machine; one that is killed or cut off loses its task to another
    after a minute.
    """
    from receiver.executor.task_executor import executor_of
    from receiver.executor.work_kinds import WORK_KINDS
    from receiver.storage.reading.reader_calls import shown_certificate

    invocation.start(LogConfig())
    wanted = [each.strip() for each in kinds.split(",") if each.strip()]
    unknown = [each for each in wanted if each not in WORK_KINDS]
    if unknown or not wanted:
        raise UsageError(f"--kinds {kinds}: expected {', '.join(WORK_KINDS)}")
    shown = shown_certificate(client_cert, client_key, ca_cert, ("--client-cert", "--client-key"))
    if not token and shown is None:
        raise UsageError("--token: missing: that of a worker, or TSFERRY_WORKER_TOKEN")
    if every <= 0:
        raise UsageError(f"--every {every}: expected seconds above 0")
    limit = parse_size(memory)
    executor = executor_of(url, token, ca_cert, data_dirs, limit, store=store, certificate=shown)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    os.nice(_NICE)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        _run(executor, wanted, once, every)
    except KeyboardInterrupt:
        return 0
    return 0


def _run(executor: Executor, kinds: list[str], once: bool, every: float) -> None:
    while True:
        try:
            is_idle = executor.run_once(kinds) is None
        except Transient as error:
            if once:
                raise
            click.echo(f"nothing is taken now: {error.message}", err=True)
            is_idle = True
        if is_idle and once:
            return
        if is_idle:
            time.sleep(every)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
