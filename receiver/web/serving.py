"""The server as a process: bind, recover, listen, say where, and stop when told to."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from common import wire
from common.durable import Tree
from common.errors import ConfigError, TsferryError
from receiver.operator.client import ADDRESS_FILE
from receiver.web.app import close, create_app, site_of
from receiver.web.server import (
    Server,
    ServerOptions,
    bind_to,
    raise_descriptor_limit,
    server_context,
    url_host,
)
from receiver.web.server.tls import load_certificate
from receiver.web.tus import FILES

if TYPE_CHECKING:
    import ssl

    from receiver.config import ListenConfig, ReceiverConfig

__all__ = ["serve"]

log = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
_REFUSAL_HEADERS = (
    ("Tus-Resumable", wire.TUS_VERSION),  # tus wants it on every answer
    ("X-Content-Type-Options", "nosniff"),
)
_BODIES = 8
"""So many of the largest requests may wait in memory at once, or 512 MiB of smaller ones."""


def serve(
    config: ReceiverConfig,
    *,
    ready: Callable[[str], None] = lambda url: None,
    ready_file: Path | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP makes it read its certificate again.

    Args:
        config: of the receiver.
        ready: told the URL once connections are taken.
        ready_file: the URL is written there then.

    Raises:
        ConfigError: the address or the certificate cannot be used.
        LockedError: another process serves these directories.
        DamagedError: a log is damaged in the middle.
    """
    tls = _tls(config.listen)
    sockets = bind_to(config.listen.host, config.listen.port)
    try:
        app = create_app(config)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    try:
        site = site_of(app)
        server = Server(app, sockets, gate=site.gate, options=_options(config), tls=tls)

        def stop() -> None:
            site.polls.close()
            server.stop(0.0 if server.stopping.is_set() else GRACE_SECONDS)

        url = _url(server, secure=tls is not None)
        token_file = site.give_operator_token()
        with (
            _noted(config.schema_dir, ADDRESS_FILE, url),
            _signals(stop, lambda: _reload(tls, config.listen)),
        ):
            try:
                _run(server, url, ready, ready_file)
            finally:
                _forget(token_file)
    finally:
        close(app)
    log.info("stopped")


def _run(server: Server, url: str, ready: Callable[[str], None], ready_file: Path | None) -> None:
    def announce() -> None:
        log.info("listening", extra={"url": url})
        ready(url)
        if ready_file is not None:
            with Tree(ready_file.absolute().parent) as tree:
                tree.write_atomic(ready_file.name, f"{url}\n".encode())

    server.run(announce)


def _options(config: ReceiverConfig) -> ServerOptions:
    listen = config.listen
    connections = raise_descriptor_limit(listen.connection_limit)
    if connections < listen.connection_limit:
        log.warning(
            "the system lets this process have fewer connections than configured (ulimit -n)",
            extra={"connections": connections},
        )
    return ServerOptions(
        threads=listen.threads,
        connection_limit=connections,
        channel_timeout=listen.channel_timeout,
        header_timeout=min(30.0, listen.channel_timeout),
        max_buffered_bytes=max(512 * 2**20, _BODIES * listen.max_request_bytes),
        piece_bytes=min(ServerOptions.piece_bytes, config.limits.max_chunk_bytes),
        split_below=f"{FILES}/",
        refusal_headers=_REFUSAL_HEADERS,
    )


def _tls(listen: ListenConfig) -> ssl.SSLContext | None:
    if listen.tls_cert is None or listen.tls_key is None:
        return None
    return server_context(listen.tls_cert, listen.tls_key)


def _reload(context: ssl.SSLContext | None, listen: ListenConfig) -> None:
    if context is None or listen.tls_cert is None or listen.tls_key is None:
        return
    try:
        load_certificate(context, listen.tls_cert, listen.tls_key)
    except ConfigError as error:
        log.error("the certificate stays as it was: %s", error.message)
    else:
        log.info("the certificate was read again")


def _url(server: Server, *, secure: bool) -> str:
    host, port = server.addresses[0]
    return f"{'https' if secure else 'http'}://{url_host(host)}:{port}"


@contextlib.contextmanager
def _noted(directory: Path, name: str, text: str) -> Iterator[None]:
    """Keep a small file while the context lasts."""
    with Tree(directory) as tree:
        tree.write_atomic(name, f"{text}\n".encode())
        try:
            yield
        finally:
            _remove(tree, name)


def _forget(path: Path) -> None:
    with Tree(path.parent) as tree:
        _remove(tree, path.name)


def _remove(tree: Tree, name: str) -> None:
    """Remove a file that only says that this process runs; without a disk it has to stay."""
    try:
        tree.unlink(name)
    except (TsferryError, OSError) as error:
        log.warning("%s stays: %s", tree.path / name, error)


@contextlib.contextmanager
def _signals(stop: Callable[[], None], reload: Callable[[], None]) -> Iterator[None]:
    """Obey signals, where this is the main thread of its process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    calls = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reload}
    before = {number: signal.getsignal(number) for number in calls}

    def obey(number: int, _frame: object) -> None:
        calls[signal.Signals(number)]()

    for number in calls:
        signal.signal(number, obey)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
