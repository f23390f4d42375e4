"""What TLS of a server stands on: its certificate, and those of clients that it takes.

All of it is read anew together, into contexts of their own: so an authority that is gone is gone,
and no session that was agreed on before goes on behind it (its tickets have other keys). A
connection belongs to the reading that its handshake was made with (`generation`).
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.errors import ConfigError
from common.network.certificates import note_in_use
from receiver.web.server.head import is_of_this_machine

if TYPE_CHECKING:
    import socket

__all__ = ["ServerTls", "TlsFiles"]

_CERTIFICATE: Final = b"CERTIFICATE"
_CRL: Final = b"X509 CRL"
_LABEL: Final = re.compile(rb"-----BEGIN ([^\r\n]*?)-----")
"""Of a part of a PEM file. OpenSSL takes `TRUSTED CERTIFICATE` and `X509 CERTIFICATE` too."""


@dataclass(frozen=True)
class TlsFiles:
    """What is read, all of it PEM.

    Attributes:
        cert: of the server, with those between it and the root.
        key: that belongs to it.
        client_ca: authorities whose client certificates are taken; None: none is asked for.
        client_crl: what these have revoked; None: nothing is known of that.
        client_required: whether clients of other machines have to show a certificate.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None
    client_crl: Path | None = None
    client_required: bool = False

    @property
    def read(self) -> list[Path]:
        """What ends, of these."""
        return [each for each in (self.cert, self.client_ca, self.client_crl) if each is not None]


class ServerTls:
    """Begins TLS on connections; `load` exchanges what it is begun with.

    Attributes:
        generation: counts the readings.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Read the files.

        Raises:
            ConfigError: they cannot be used; the message says why.
        """
        self._files = files
        self._contexts = _contexts(files)
        self.generation = 0

    def load(self, files: TlsFiles | None = None) -> None:
        """Read the files again, or others, for connections from now on; from any thread.

        Raises:
            ConfigError: they cannot be used; all stays as it was.
        """
        files = files or self._files
        made = _contexts(files)
        self._files, self._contexts = files, made
        self.generation += 1

    def wrap(self, sock: socket.socket, peer: str, local: str) -> ssl.SSLSocket:
        """TLS on a connection that does not block; the handshake is still to be made.

        Args:
            sock: of the connection.
            peer: address of the other end.
            local: our own end of it.
        """
        others, ours = self._contexts
        context = ours if is_of_this_machine(peer, local) else others
        return context.wrap_socket(
            sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
        )


def _contexts(files: TlsFiles) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For other machines, and for this one: its operator's commands have no certificate."""
    contents = {path: found for path in files.read if (found := _content(path)) is not None}
    ours = _context(files, ssl.CERT_NONE if files.client_ca is None else ssl.CERT_OPTIONAL)
    others = _context(files, ssl.CERT_REQUIRED) if files.client_required else ours
    # Read before: a file that was exchanged in between is told as exchanged, not as in use.
    note_in_use(contents)
    return others, ours


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _context(files: TlsFiles, mode: ssl.VerifyMode) -> ssl.SSLContext:
    """TLS 1.2 or newer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    _load_certificate(context, files.cert, files.key)
    context.verify_mode = mode
    if files.client_ca is not None:
        _load_clients(context, files.client_ca, files.client_crl)
    return context


def _load_certificate(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"listen.tls_cert = {cert}, listen.tls_key = {key}: expected a PEM certificate "
            f"and its key without a passphrase: {_why(error)}"
        ) from error


def _load_clients(context: ssl.SSLContext, ca: Path, crl: Path | None) -> None:
    _load(context, "client_ca", ca, "certificates of authorities", _CERTIFICATE)
    if crl is None:
        return
    # A certificate in it would be an authority from then on.
    _load(context, "client_crl", crl, "lists of revoked certificates", _CRL)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load(context: ssl.SSLContext, key: str, path: Path, what: str, wanted: bytes) -> None:
    try:
        content = path.read_bytes()
        labels = set(_LABEL.findall(content))
        if labels != {wanted}:
            raise ValueError("it has others" if labels - {wanted} else "it has none")
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"listen.{key} = {path}: expected a PEM file with {what}, and nothing else: "
            f"{_why(error)}"
        ) from error


def _why(error: Exception) -> object:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or error


def _no_password() -> str:
    raise ValueError("the key has a passphrase")
