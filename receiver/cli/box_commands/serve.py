"""`serve`: the server in the foreground."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from common.config import Flag
from common.console.cli import Invocation
from common.errors import LockedError, UsageError
from receiver.config import ReceiverConfig

if TYPE_CHECKING:
    from receiver.web.serving import MakesServed

__all__ = ["serve"]


@click.command(
    epilog="Example: tsferry-receiver --config receiver.toml serve. Exit codes: 0 stopped by "
    "SIGTERM or SIGINT; 2 wrong configuration; 4 the address is not there yet; 5 another process "
    "has the directories, or the address."
)
@click.option("--host", help="Listen on this address.  [default: listen.host]")
@click.option("--port", type=int, help="Listen on this port, 0 for any.  [default: listen.port]")
@click.option("--insecure", is_flag=True, help="Allow plain HTTP and no tokens off loopback.")
@click.option(
    "--follow",
    metavar="URL",
    help="Only read: follow the copies at s3://... or file:///..., or the receiver at https://..., "
    "or with commas all that may be it.  [default: follow.url]",
)
@click.option(
    "--node",
    is_flag=True,
    help="Be a storage node: keep files for a master, without an engine.  "
    "[default: if node.master]",
)
@click.option(
    "--master",
    multiple=True,
    metavar="URL[,URL]",
    help="The receiver that a storage node keeps files for, and those that may take its place; may "
    "be repeated.  [default: node.master]",
)
@click.option(
    "--standby",
    is_flag=True,
    help="With etcd: while another receiver is at work on the same keys, wait for its end, and "
    "then take its place.  [default: metadata.etcd.standby]",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    help="Write the URL there once connections are taken.",
)
@click.pass_obj
def serve(
    invocation: Invocation[ReceiverConfig],
    host: str | None,
    port: int | None,
    insecure: bool,
    follow: str | None,
    node: bool,
    master: tuple[str, ...],
    standby: bool,
    ready_file: Path | None,
) -> None:
    """Recover, then serve until SIGTERM or SIGINT.

    Says "listening on URL" on stdout once connections are taken. SIGHUP: read configuration, token
    files and certificate again; requests wait a moment if anything but the certificate changed,
    and what is wrong leaves all as it was.
    """
    flags: dict[str, object] = {}
    if host is not None:
        flags["listen.host"] = Flag(host, "--host")
    if port is not None:
        flags["listen.port"] = Flag(port, "--port")
    if insecure:
        flags["listen.insecure"] = Flag(True, "--insecure")
    if follow is not None:
        flags["follow.url"] = Flag(follow, "--follow")
    if master:
        urls = [url.strip() for each in master for url in each.split(",") if url.strip()]
        flags["node.master"] = Flag(urls, "--master")
    if standby:
        flags["metadata.etcd.standby"] = Flag(True, "--standby")
    loaded = invocation.load(flags)
    loaded.value.must_have_directories()
    if node and not loaded.value.node.master:
        raise UsageError("--node: expected with --master, or node.master in the configuration")
    invocation.start(loaded.value.log)
    log = logging.getLogger(__name__)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    make = _what_is_served(loaded.value)
    from receiver.open_engine import stand_by
    from receiver.web import serving

    def ready(url: str) -> None:
        click.echo(f"listening on {url}")

    def reload() -> ReceiverConfig:
        config = invocation.load(flags).value
        invocation.start(config.log)
        return config

    more = {} if make is None else {"make": make}
    while True:
        if (
            loaded.value.metadata.etcd.standby
        ):  # nobody who looks for the master is to wait for this one: it does not listen
            stand_by(loaded.value)
        try:
            serving.serve(loaded.value, ready=ready, ready_file=ready_file, reload=reload, **more)
        except LockedError as error:
            if not loaded.value.metadata.etcd.standby or "host" not in error.extra:
                raise  # another process has these very directories
            log.info("another one was there first: %s", error)
        else:
            return


def _what_is_served(config: ReceiverConfig) -> MakesServed | None:
    """A storage node; None for a receiver, which imports nothing of one."""
    if not config.node.master:
        return None
    from receiver.storagenode.node_web.node_app import ServedNode

    return ServedNode
