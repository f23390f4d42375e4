"""The certificate that a client shows: read again when it has changed, so that none need restart.

A pair that does not fit, as while somebody is putting a new one there, leaves the one before in
use; the log says so once. Nothing of it is ever sent but in a handshake with a server that has been
verified.
"""

from __future__ import annotations

import logging
import ssl
import threading
from typing import TYPE_CHECKING

from urllib3.util.ssl_ import create_urllib3_context

from common.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ClientCertificate"]

_log = logging.getLogger(__name__)

_Version = tuple[tuple[int, int, int] | None, ...]


class ClientCertificate:
    """A PEM certificate and its key; any thread may ask.

    Args:
        cert: the certificate, with those between it and the root.
        key: the private key.
        ca: what the server is checked against, read anew with them.
        keys: what the two are called in messages.
    """

    def __init__(
        self,
        cert: Path,
        key: Path,
        ca: Path | None = None,
        keys: tuple[str, str] = ("client_cert", "client_key"),
    ) -> None:
        self.cert, self.key = cert, key
        self._watched = (cert, key) if ca is None else (cert, key, ca)
        self._keys = keys
        self._lock = threading.Lock()
        self._made: ssl.SSLContext | None = None
        self._version: _Version = ()

    def context(self) -> ssl.SSLContext:
        """What TLS begins with: another one once a file has changed, and connections with it.

        Raises:
            ConfigError: there is no pair that can be used, and was none.
        """
        version = tuple(_version(each) for each in self._watched)
        with self._lock:
            if self._made is not None and version == self._version:
                return self._made
            try:
                made = self._read()
                if self._made is not None:
                    _log.info("the client certificate was read again: %s", self.cert)
            except ConfigError as error:
                if self._made is None:
                    raise
                _log.warning("the client certificate stays as it was: %s", error.message)
                made = self._made
            self._made, self._version = made, version
            return made

    def _read(self) -> ssl.SSLContext:
        context = create_urllib3_context()
        cert, key = self._keys
        shown = f"{cert} = {self.cert}, {key} = {self.key}"
        try:
            context.load_cert_chain(self.cert, self.key, password=_no_password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise ConfigError(
                    f"{shown}: the key is not that of the certificate: put both of one issue there"
                ) from error
            raise ConfigError(f"{shown}: expected PEM: {error.reason or error}") from error
        except ValueError as error:
            raise ConfigError(f"{shown}: {error}: take it off by openssl pkey") from error
        except OSError as error:
            missing = next((each for each in (self.cert, self.key) if not each.is_file()), None)
            what = f"{missing} " if missing is not None else ""
            raise ConfigError(
                f"{shown}: {what}cannot be read: {error.strerror or error}"
            ) from error
        return context


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _no_password() -> str:
    raise ValueError("the key has a passphrase")
