"""`tsferry-sender run`, `start`, `stop`: the daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import click

from common.console.cli import Invocation, emit_json
from sender.cli.program import json_option, opened, reloading, stopping, warn_of_root
from sender.config import SenderConfig

__all__ = ["run_daemon", "start", "stop"]

_LOG = "daemon.out"


@click.command("run", epilog="Example: tsferry-sender --config /etc/tsferry/sender.toml run")
@click.pass_obj
def run_daemon(invocation: Invocation[SenderConfig]) -> int:
    """Run the daemon in the foreground: rounds by period, and when new files come.

    Ends cleanly on SIGTERM and Ctrl-C; what was on its way goes on with the next start. SIGHUP:
    read configuration, token files and certificates again; what is wrong leaves all as it was.
    """
    from sender.daemon.daemon import Daemon

    _with_a_heap_that_shrinks(invocation)
    loaded = invocation.load()
    invocation.start(loaded.value.log)
    warn_of_root(loaded.value)
    stop = threading.Event()
    daemon = Daemon(loaded.value, stop, reload=lambda: _loaded_again(invocation))
    with stopping(stop), reloading(daemon.reload):
        daemon.run()
    return 0


def _loaded_again(invocation: Invocation[SenderConfig]) -> SenderConfig:
    config = invocation.load().value
    invocation.start(config.log)
    return config


@click.command(epilog="Example: tsferry-sender --config /etc/tsferry/sender.toml start")
@click.option(
    "--wait", type=float, default=20.0, show_default=True, help="Seconds until it must answer."
)
@json_option("sender.cli.command_views:DaemonStarted")
@click.pass_obj
def start(invocation: Invocation[SenderConfig], wait: float, as_machine: bool) -> int:
    """Start the daemon in the background, and wait until it answers.

    Its output goes to the configured log file, or to `sync/daemon.out` in the schema directory.
    """
    from common.errors import TsferryError
    from sender.daemon.processes import running

    with opened(invocation) as session:
        schema_dir = session.config.schema_dir
        warn_of_root(session.config)
        with session.remotes[0].sync_tree() as sync:
            found = running(sync)
            if found is None:
                log = sync.append_file(_LOG, mode=0o640)
                try:
                    process = _spawn(invocation, log.fileno())
                finally:
                    log.close()
                problem = _wait_for(process, schema_dir, wait)
                if problem is not None:
                    raise TsferryError(f"{problem}; see {sync.path / _LOG}")
                pid: int | None = process.pid
            else:
                pid = found.pid
    if as_machine:
        from sender.cli.command_views import DaemonStarted

        emit_json(DaemonStarted(pid=pid, started=found is None))
    else:
        click.echo(f"{'runs' if found is None else 'runs already'}: process {pid or 'unknown'}")
    return 0


def _with_a_heap_that_shrinks(invocation: Invocation[SenderConfig]) -> None:
    """Begin again with the allocator of the C library, unless another was asked for.

    Python's own keeps the arenas of a large round for ever, half empty: 20 MB with 10,000 files.
    The C library gives single pages back (`malloc_trim`). Same process, same pid; a Ctrl-C in
    between waits until it is answered again (`common.console.start`).
    """
    if "PYTHONMALLOC" not in os.environ:
        environ = os.environ | {"PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "2"}
        arguments = _run_arguments(invocation)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        with suppress(OSError):  # as where its path may not be entered: memory is all that it costs
            os.execve(arguments[0], arguments, environ)  # noqa: S606 - our own interpreter
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _run_arguments(invocation: Invocation[SenderConfig]) -> list[str]:
    arguments = [sys.executable, "-P", "-m", "sender.cli"]
    if invocation.file is not None:
        arguments += ["--config", str(invocation.file.absolute())]
    for setting in invocation.settings:
        arguments += ["--set", setting]
    if invocation.verbose:
        arguments.append("--verbose")
    return [*arguments, "run"]


def _spawn(invocation: Invocation[SenderConfig], output: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own interpreter with our own arguments
        _run_arguments(invocation),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        close_fds=True,
    )


def _wait_for(process: subprocess.Popen[bytes], schema_dir: Path, patience: float) -> str | None:
    """Why it did not come up, or None."""
    from common.errors import TsferryError
    from sender.daemon.control import ask

    end = time.monotonic() + patience
    while time.monotonic() < end:
        code = process.poll()
        if code is not None:
            return f"the daemon ended with exit code {code}"
        try:
            if ask(schema_dir, {"do": "ping"}, patience=1.0).get("pid") == process.pid:
                return None
        except TsferryError:
            pass
        time.sleep(0.05)
    return f"the daemon (process {process.pid}) does not answer after {patience:g} s"


@click.command(epilog="Example: tsferry-sender --config /etc/tsferry/sender.toml stop")
@click.option(
    "--wait", type=float, default=60.0, show_default=True, help="Seconds that it may take."
)
@json_option("sender.cli.command_views:DaemonStopped")
@click.pass_obj
def stop(invocation: Invocation[SenderConfig], wait: float, as_machine: bool) -> int:
    """Stop the daemon of this schema directory, known by the lock that it holds, and wait for it.

    None running is fine. Exit code 5: it did not end in time.
    """
    from sender.daemon.processes import stop_running

    with opened(invocation) as session, session.remotes[0].sync_tree() as sync:
        stopped = stop_running(sync, wait)
    if as_machine:
        from sender.cli.command_views import DaemonStopped

        emit_json(DaemonStopped(stopped=stopped))
    else:
        click.echo("stopped" if stopped else "was not running")
    return 0
