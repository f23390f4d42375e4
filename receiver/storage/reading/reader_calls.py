"""Calls of a reader or a worker to a receiver: with a token that goes to that server alone.

Of several addresses, with commas between them, whichever leads is asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import requests
import urllib3

from common import wire
from common.errors import (
    NotTheWriterError,
    ProtocolError,
    TsferryError,
    UnreachableError,
    UsageError,
)
from common.network.client_certificate import ClientCertificate
from common.network.timed_http import timed_session
from receiver.storage.reading.several_addresses import (
    Failover,
    SlowAnswerError,
    checked_addresses,
)

__all__ = ["OPTION_NAMES", "CallAnswer", "ReaderCalls", "shown_certificate"]

_TIMEOUT = (10, 60)
_WITHIN = 120.0
"""Seconds for a whole answer, of which the longest are 8 MiB of a file: a server that sends a byte
now and then keeps nobody."""
_FRESH = 5.0
"""Seconds for which one that has answered is not thought to hang."""
_LIVES, _LEADS = "/healthz", "/v1/log"
"""What each answers that lives; and, with an operator's token, none that has lost its place."""
_MOST = 1 << 27
_PIECE = 1 << 20
_PAUSE = 1.0
"""Seconds until all are asked again, while the place of one that led is free."""
_NO_ANSWER = (requests.RequestException, urllib3.exceptions.HTTPError, OSError, UnicodeError)
"""An answer that breaks off is urllib3's error, since its body is read past `requests`; a name that
no host can have is so too, and a token that no header can carry is one of characters."""


OPTION_NAMES: Final = ("option clientCert", "option clientKey")
"""What a certificate and its key are called by those who set options of Spark."""


def shown_certificate(
    cert: str | Path | None, key: str | Path | None, ca_cert: str | None, names: tuple[str, str]
) -> ClientCertificate | None:
    """The certificate that a reader, writer or worker shows; None without one.

    Args:
        cert: PEM file with it.
        key: PEM file with its private key.
        ca_cert: PEM file that the server is checked against.
        names: what the first two are called.

    Raises:
        UsageError: one of them is given without the other.
    """
    if (cert is None) is not (key is None):
        raise UsageError(f"{names[0]}: expected with {names[1]}, and {names[1]} with it")
    if cert is None or key is None:
        return None
    authorities = None if ca_cert is None else Path(ca_cert)
    return ClientCertificate(Path(cert), Path(key), authorities, names)


class CallAnswer(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ReaderCalls:
    """Asks one server, or the one that leads of several; any thread may call."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        ca_cert: str | None,
        certificate: ClientCertificate | None = None,
        what: str,
        timeout: tuple[float, float] = _TIMEOUT,
        within: float = _WITHIN,
        patience: float = 0.0,
        once: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Ask nothing yet.

        Args:
            url: of the server; or, with commas between them, of all that may lead.
            token: of a reader, or a worker.
            ca_cert: PEM file that it is checked against.
            certificate: that it is shown, made with the same `ca_cert`.
            what: names the URL in messages.
            timeout: seconds until it has to take a connection, and between two pieces of an answer.
            within: seconds that an answer may take in all.
            patience: seconds for which several are asked again, until one of them leads.
            once: what is no question is said to the one that leads and to no other one, whatever
                becomes of it: not all that an operator says may be done twice.
            monotonic: seconds.
            sleep: waits for so many seconds.

        Raises:
            UsageError: the URL is none, or the token would travel where others can read it.
        """
        self._leads = Failover(checked_addresses(url, what, with_token=bool(token)))
        self._patience, self._sleep = patience, sleep
        self._once = once
        self._answered = ("", 0.0)
        """Which one has said something, and when."""
        self._token, self._ca_cert = token, ca_cert
        self._certificate = certificate
        self._timeout = timeout
        self._within, self._monotonic = within, monotonic
        self._of_thread = threading.local()  # a session is no thing for several threads
        self._lock = threading.Lock()
        self._sessions: list[requests.Session] = []

    def get(
        self,
        path: str,
        query: Mapping[str, str | int | None],
        headers: Mapping[str, str] | None = None,
        *,
        soon: float | None = None,
    ) -> bytes:
        """The body of an answer; raises as `ask`."""
        return self.ask("GET", path, query, headers, soon=soon).body

    def post(
        self,
        path: str,
        query: Mapping[str, str | int | None],
        body: bytes,
        media: str = "application/json",
    ) -> CallAnswer:
        """Say something; raises as `ask`."""
        return self.ask("POST", path, query, {"Content-Type": media} if body else {}, body)

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int | None],
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        soon: float | None = None,
    ) -> CallAnswer:
        """An answer.

        Args:
            method: of the call.
            path: of the call.
            query: what is None is left out.
            headers: further ones.
            body: of the request.
            soon: seconds that the only address has, where less than ever; of several each has few,
                and more only where no other one leads.

        Raises:
            SlowAnswerError: it has not answered in this time.
            UnreachableError: nobody answers.
            TsferryError: as the server refused it.
        """

        def of(url: str, soon: float | None = None) -> CallAnswer:
            try:
                answer = self._ask(url + path, method, query, headers, body, soon)
            except UnreachableError:
                raise
            except TsferryError:
                self._hear(url)
                raise
            self._hear(url)
            return answer

        if not self._leads.are_several:
            return of(self._leads.current, soon)
        until = self._monotonic() + self._patience
        while True:
            try:
                if method == "GET":
                    if self._once:
                        self._prefer_the_one_that_leads()
                    return self._leads.ask_soon(of)
                # What changes something is not said again because its answer takes a while.
                self._find_one_alive()
                return of(self._leads.current) if self._once else self._leads.ask(of)
            except UnreachableError:
                if self._monotonic() + _PAUSE > until:
                    raise
            self._sleep(_PAUSE)

    def _hear(self, url: str) -> None:
        """One has said something: it does not hang. That it leads is another question."""
        if not self._once:
            self._answered = url, self._monotonic()

    def _prefer_the_one_that_leads(self) -> None:
        """Some questions are answered by one that has lost its place, too: how it is."""
        try:
            self._find_one_alive()
        except (UnreachableError, NotTheWriterError):
            return  # none leads: each that is there says how it is itself

    def _find_one_alive(self) -> None:
        """Have one in the first place that does not hang, unless it has just answered.

        Raises:
            UnreachableError: none answers.
            NotTheWriterError: none of them leads, where that is asked.
        """
        url, at = self._answered
        if url == self._leads.current and self._monotonic() - at < _FRESH:
            return

        path = _LEADS if self._once else _LIVES

        def look(url: str, soon: float | None) -> None:
            try:
                self._ask(url + path, "GET", {"wait": 0}, None, b"", soon)
            except (UnreachableError, NotTheWriterError):
                raise
            except TsferryError:
                return  # it says something, so it does not hang

        self._leads.ask_soon(look)
        if self._once:
            self._answered = self._leads.current, self._monotonic()

    def _ask(
        self,
        url: str,
        method: str,
        query: Mapping[str, str | int | None],
        headers: Mapping[str, str] | None,
        body: bytes,
        soon: float | None = None,
    ) -> CallAnswer:
        connect, wait = self._timeout
        begun = 0.0 if soon is None else self._monotonic()
        timeout = (connect, wait) if soon is None else (min(connect, soon), min(wait, soon))
        try:
            with self._session().request(
                method,
                url,
                params={key: value for key, value in query.items() if value is not None},
                headers=dict(headers or {}),
                data=body or None,
                timeout=timeout,
                allow_redirects=False,
                stream=True,
            ) as answer:
                got = self._body(answer)
        except _NO_ANSWER as error:
            is_late = timeout[1] < wait and self._monotonic() - begun >= timeout[1]
            kind = SlowAnswerError if is_late else UnreachableError
            raise kind(f"{url} does not answer: {_why(error)}") from error
        if answer.status_code >= 300:
            raise _refusal(url, answer, got)
        return CallAnswer(answer.status_code, answer.headers, got)

    @property
    def url(self) -> str:
        """The address that answered last."""
        return self._leads.current

    def _body(self, answer: requests.Response) -> bytes:
        until, got = self._monotonic() + self._within, bytearray()
        while len(got) < _MOST:
            piece = answer.raw.read1(min(_PIECE, _MOST - len(got)), decode_content=True)
            if not piece:
                break
            got += piece
            if self._monotonic() > until:
                raise TimeoutError(f"{len(got)} bytes in {self._within:g} seconds, and no end")
        return bytes(got)

    def close(self) -> None:
        """Let go of connections."""
        with self._lock:
            sessions, self._sessions = self._sessions, []
        for each in sessions:
            each.close()

    def _session(self) -> requests.Session:
        made: requests.Session | None = getattr(self._of_thread, "session", None)
        secured = None if self._certificate is None else self._certificate.context()
        if made is not None and secured is not self._of_thread.secured:
            made.close()  # a connection goes on with the certificate that it began with
            with self._lock:
                self._sessions = [each for each in self._sessions if each is not made]
            made = None
        if made is None:
            # Of the environment nothing is taken: the token is for this server alone.
            made = self._of_thread.session = timed_session(secured, within=self._within)
            self._of_thread.secured = secured
            if secured is not None:
                made.verify = requests.utils.DEFAULT_CA_BUNDLE_PATH
            if self._ca_cert is not None:
                made.verify = self._ca_cert
            if self._token:
                made.headers["Authorization"] = f"Bearer {self._token}"
            with self._lock:
                self._sessions.append(made)
        return made


def _why(error: BaseException) -> str:
    """The system's own words, where there are some in what `requests` and urllib3 put around it."""
    inside: object = error
    while isinstance(inside, BaseException):
        if isinstance(inside, OSError) and inside.strerror:
            return inside.strerror
        reason = getattr(inside, "reason", None)
        inside = reason or inside.__cause__ or (inside.args[0] if inside.args else None)
    return str(error)


def _refusal(url: str, answer: requests.Response, body: bytes) -> TsferryError:
    if answer.headers.get("Content-Type", "").partition(";")[0] == wire.PROBLEM_TYPE:
        return wire.from_problem(wire.decode(body, wire.Problem, "the server's refusal"))
    return ProtocolError(f"{url} answered with HTTP status {answer.status_code}")
