"""The server as a process: bind, recover, listen, say where, and stop when told to."""

from __future__ import annotations

import contextlib
import datetime
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from common import wire
from common.config.metrics_rules import listen_of
from common.durable import Tree
from common.errors import ConfigError, TsferryError
from common.network.certificates import CertificateFile, crl_end
from receiver.operator.client import ADDRESS_FILE
from receiver.web.app import close, create_app, site_of
from receiver.web.handlers.tus import FILES
from receiver.web.server import (
    Server,
    ServerOptions,
    ServerTls,
    TlsFiles,
    bind_to,
    raise_descriptor_limit,
    url_host,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from flask import Flask

    from receiver.config import ListenConfig, ReceiverConfig
    from receiver.web.server import Gate

__all__ = ["MakesServed", "Served", "serve"]

log = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
_REFUSAL_HEADERS = (
    ("Tus-Resumable", wire.TUS_VERSION),  # tus wants it on every answer
    ("X-Content-Type-Options", "nosniff"),
)
_BODIES = 8
"""So many of the largest requests may wait in memory at once, or 512 MiB of smaller ones."""


class Served(Protocol):
    """An application that is served, with all that it has open."""

    @property
    def application(self) -> Callable[..., Any]:
        """By WSGI."""

    @property
    def gate(self) -> Gate:
        """Judges requests before their bodies are read."""

    @property
    def handshake_refused(self) -> Callable[[str, str], None]:
        """Hears of a client certificate that is not taken: from which address, and why."""

    @property
    def measures(self) -> Callable[[], bytes] | None:
        """Tells the measures as Prometheus reads them; None if there are none."""

    def give_operator_token(self) -> Path:
        """Make a token for the commands on this machine; returns the file that it is in."""

    def listening(self, url: str) -> None:
        """Hear that connections are taken, and where."""

    def stop_waiting(self) -> None:
        """Let no call wait any more: the server is told to stop."""

    def close(self) -> None:
        """Let go of everything; closing twice is harmless."""


class MakesServed(Protocol):
    """Opens what is served."""

    def __call__(self, config: ReceiverConfig, anew: Callable[[], None]) -> Served:
        """Open it.

        Args:
            config: of the program.
            anew: called when it has to be closed and opened again.
        """


class _Receiver:
    """A receiver, or a node that follows one; see `Served`."""

    def __init__(self, config: ReceiverConfig, anew: Callable[[], None]) -> None:
        self._app: Flask = create_app(config, anew=anew)
        self._site = site_of(self._app)
        self.application = self._app
        self.gate = self._site.gate
        self.handshake_refused = self._site.audit.handshake_refused
        self.measures = self._site.measures
        self.give_operator_token = self._site.give_operator_token
        self.stop_waiting = self._site.polls.close

    def listening(self, url: str) -> None:
        """Nobody inside needs to know."""

    def close(self) -> None:
        """Close the engine and all else."""
        close(self._app)


def serve(
    config: ReceiverConfig,
    *,
    ready: Callable[[str], None] = lambda url: None,
    ready_file: Path | None = None,
    reload: Callable[[], ReceiverConfig] | None = None,
    make: MakesServed = _Receiver,
) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP makes it read configuration and certificate again.

    Args:
        config: of the receiver.
        ready: told the URL once connections are taken.
        ready_file: the URL is written there then.
        reload: reads the configuration; without it, only the certificate is read again.
        make: opens what is served: a receiver, if left out.

    Raises:
        ConfigError: the address or the certificate cannot be used.
        LockedError: another process serves these directories.
        DamagedError: a log is damaged in the middle.
    """
    _Service(config, ready, ready_file, reload, make).run()
    log.info("stopped")


class _Service:
    """A server, and the one that takes its place when the configuration has changed."""

    def __init__(
        self,
        config: ReceiverConfig,
        ready: Callable[[str], None],
        ready_file: Path | None,
        reload: Callable[[], ReceiverConfig] | None,
        make: MakesServed,
    ) -> None:
        self._make = make
        self._config = config
        self._ready = ready
        self._ready_file = ready_file
        self._load = reload
        self._tls = _tls(config.listen)
        self._sockets = bind_to(config.listen.host, config.listen.port)
        self._next: ReceiverConfig | None = None
        self._stop_server: Callable[[], None] = lambda: None
        self._ended = False
        self._told = ""

    def run(self) -> None:
        """Serve until told to stop."""
        try:
            app = self._open(self._config)
            with _signals(self._stop, self._reload):
                while True:
                    try:
                        self._serve(app)
                    finally:
                        app.close()
                    if self._ended or self._next is None:
                        return
                    app = self._open_next(self._next)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Nobody comes after this server: who connects now is refused, and does not wait."""
        for sock in self._sockets:
            sock.close()

    # -- signals -----------------------------------------------------------------------------

    def _stop(self) -> None:
        self._ended = True
        self._let_go()
        self._stop_server()

    def _reload(self) -> None:
        # Not in the handler: it may have come in the middle of writing a record of the log.
        threading.Thread(target=self._look_again, name="reload", daemon=True).start()

    def _look_again(self) -> None:
        """Read all again; what is wrong leaves everything as it is."""
        config = self._config
        try:
            if self._load is not None:
                config = self._load()
            if config == self._config:
                _reload(self._tls, config.listen)
                return
            _tls(config.listen)  # one that cannot be used is found before anything is closed
            # The port that the system picked stays, as long as any is asked for.
            if _where(config) != _where(self._config):
                new = bind_to(config.listen.host, config.listen.port)
                old, self._sockets = self._sockets, new
                for sock in old:
                    sock.close()
        except Exception as error:
            log.error("the configuration stays as it was: %s", error)
            return
        log.info("the configuration has changed; beginning anew")
        self._next = config
        self._stop_server()

    def _begin_anew(self) -> None:
        """A node that follows has its next copy; requests wait while it is opened."""
        log.info("beginning with a new copy")
        if self._next is None:
            self._next = self._config
        self._stop_server()

    # -- one server after the other --------------------------------------------------------------

    def _open(self, config: ReceiverConfig) -> Served:
        return self._make(config, self._begin_anew)

    def _open_next(self, config: ReceiverConfig) -> Served:
        """The application with another configuration; with the one before, if that cannot be."""
        self._next = None
        before, self._config = self._config, config
        try:
            app = self._open(config)
        except (TsferryError, OSError) as error:
            log.error("the configuration stays as it was: %s", error)
            self._config = before
            return self._open(before)
        self._tls = _tls(config.listen)
        return app

    def _serve(self, app: Served) -> None:
        """Serve until the server is stopped."""
        config = self._config
        # Copies: who connects while one server makes way for the next waits in the queue.
        sockets = [sock.dup() for sock in self._sockets]
        for sock in sockets:
            sock.setblocking(False)
        server = Server(
            app.application,
            sockets,
            gate=app.gate,
            options=_options(config),
            tls=self._tls,
            refused=app.handshake_refused,
        )

        def stop() -> None:
            app.stop_waiting()
            server.stop(0.0 if server.stopping.is_set() else GRACE_SECONDS)

        self._stop_server = stop
        if self._ended or self._next is not None:
            stop()
        url = _url(server, secure=self._tls is not None)
        token_file = app.give_operator_token()
        with self._metrics_port(app):
            try:
                _note(config.schema_dir, ADDRESS_FILE, url)
                server.run(lambda: self._announce(app, url))
            finally:
                if self._next is None:
                    self._let_go()
                # Commands wait for the next server as other calls do, and do not take it for gone.
                if not self._goes_on_at(config.schema_dir):
                    for file in (config.schema_dir / ADDRESS_FILE, token_file):
                        _forget(file)

    def _goes_on_at(self, schema_dir: Path) -> bool:
        there = self._next
        return not self._ended and there is not None and there.schema_dir == schema_dir

    def _metrics_port(self, app: Served) -> AbstractContextManager[object]:
        """The port of its own for measures, if one is configured.

        Raises:
            TsferryError: the address cannot be had at the start; once the server runs, it goes on
                without, and its log says so.
        """
        listen = self._config.metrics.listen
        if listen is None or app.measures is None:
            return contextlib.nullcontext()
        from common.metering.metrics_port import MetricsPort

        try:
            port = MetricsPort(*listen_of(listen), app.measures)
        except TsferryError as error:
            if not self._told:
                raise
            log.error("measures are not served: %s", error.message)
            return contextlib.nullcontext()
        log.info("measures are served", extra={"address": ":".join(map(str, port.address))})
        return port

    def _announce(self, app: Served, url: str) -> None:
        app.listening(url)
        if url == self._told:
            return
        self._told = url
        log.info("listening", extra={"url": url})
        self._ready(url)
        if self._ready_file is not None:
            with Tree(self._ready_file.absolute().parent) as tree:
                tree.write_atomic(self._ready_file.name, f"{url}\n".encode())


def _where(config: ReceiverConfig) -> tuple[str, int]:
    return config.listen.host, config.listen.port


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


def _tls(listen: ListenConfig) -> ServerTls | None:
    if listen.tls_cert is None or listen.tls_key is None:
        return None
    tls = ServerTls(
        TlsFiles(
            listen.tls_cert,
            listen.tls_key,
            listen.client_ca,
            listen.client_crl,
            listen.client_auth == "required",
        )
    )
    _has_ended(listen)
    return tls


def _reload(tls: ServerTls | None, listen: ListenConfig) -> None:
    if tls is None:
        return
    try:
        tls.load()
    except ConfigError as error:
        log.error("the certificate stays as it was: %s", error.message)
    else:
        if not _has_ended(listen):
            log.info("the certificate was read again")


def _has_ended(listen: ListenConfig) -> bool:
    """Whether a file is past its end, which the log says: nobody is taken by it, or takes it."""
    ended = False
    for key, file, until in (
        ("tls_cert", listen.tls_cert, CertificateFile(listen.tls_cert).until()),
        ("client_ca", listen.client_ca, CertificateFile(listen.client_ca).until()),
        ("client_crl", listen.client_crl, CertificateFile(listen.client_crl, crl_end).until()),
    ):
        if until is not None and until <= time.time():
            at = datetime.datetime.fromtimestamp(until, datetime.UTC).isoformat(timespec="seconds")
            log.error("listen.%s = %s ended on %s: put a new one there", key, file, at)
            ended = True
    return ended


def _url(server: Server, *, secure: bool) -> str:
    host, port = server.addresses[0]
    return f"{'https' if secure else 'http'}://{url_host(host)}:{port}"


def _note(directory: Path, name: str, text: str) -> None:
    with Tree(directory) as tree:
        tree.write_atomic(name, f"{text}\n".encode())


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
    # SIGHUP before this was held back; behind this it is ignored: it never ends the process.
    calls = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reload}
    before = {number: signal.getsignal(number) for number in calls}

    def obey(number: int, _frame: object) -> None:
        calls[signal.Signals(number)]()

    for number in calls:
        signal.signal(number, obey)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        for number, handler in before.items():
            is_end = number == signal.SIGHUP and handler is signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if is_end else handler)
