"""What is known of a request when its headers are in and its body is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from common.config import is_loopback

__all__ = ["CERTIFICATE_KEY", "Gate", "PeerCertificate", "RequestHead", "is_of_this_machine"]

CERTIFICATE_KEY = "tsferry.certificate"
"""Of the WSGI environment; what comes in headers has keys with `HTTP_`."""


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """A client certificate that the handshake of its connection has verified.

    Attributes:
        names: it is known by, see `receiver.metadata.model.certificate_names`.
        until: its end, seconds since the epoch.
        fingerprint: SHA-256 of it, in hex.
    """

    names: tuple[str, ...]
    until: float
    fingerprint: str


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request without its body.

    Attributes:
        peer: address of the other end of the connection, never taken from a header.
        local: our own end of it; empty where the server does not tell.
        method: as sent, upper case.
        path: decoded (latin-1, as WSGI has it), without the query.
        headers: keys as WSGI spells them, without `HTTP_`: `CONTENT_LENGTH`, `UPLOAD_OFFSET`.
        certificate: of the connection, never taken from a header; None without one.
    """

    peer: str
    local: str
    method: str
    path: str
    headers: Mapping[str, str]
    certificate: PeerCertificate | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, object]) -> RequestHead:
        """The head of the request that a WSGI application was called for."""
        headers = {
            key.removeprefix("HTTP_"): value
            for key, value in environ.items()
            if isinstance(value, str)
            and (key.startswith("HTTP_") or key in ("CONTENT_LENGTH", "CONTENT_TYPE"))
        }
        certificate = environ.get(CERTIFICATE_KEY)
        return cls(
            peer=str(environ.get("REMOTE_ADDR", "")),
            local=str(environ.get("tsferry.local", "")),
            method=str(environ.get("REQUEST_METHOD", "")),
            path=str(environ.get("PATH_INFO", "")),
            headers=headers,
            certificate=certificate if isinstance(certificate, PeerCertificate) else None,
        )

    def header(self, name: str) -> str | None:
        """The value of a header by its usual name, such as `Upload-Offset`."""
        return self.headers.get(name.upper().replace("-", "_"))

    @property
    def owner(self) -> str:
        """Whose request it is, as far as that is known: by token, by certificate, by address."""
        words = (self.header("Authorization") or "").split()
        shown = None if self.certificate is None else self.certificate.fingerprint
        return words[-1] if words else shown or self.peer

    @property
    def from_this_machine(self) -> bool:
        """Whether the peer can only be a process of this machine."""
        return is_of_this_machine(self.peer, self.local)


def is_of_this_machine(peer: str, local: str) -> bool:
    """Whether a connection can only be one of this machine with itself, by its two ends."""
    return is_loopback(peer) or (bool(local) and peer == local)


Gate = Callable[[RequestHead], int]
"""Judges a request by its head: the bytes its body may have, or a `TsferryError` to refuse it."""
