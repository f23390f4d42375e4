"""Bytes of files from a receiver or a node that follows one, by a reader's token.

The token is that of the process that reads: of its environment, or a file that is named there. It
is part of no plan, no address and no message.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from common import wire
from common.errors import (
    BusyError,
    ForbiddenError,
    ProtocolError,
    UnauthorizedError,
    UsageError,
)
from receiver.storage.reading.reader_calls import OPTION_NAMES, ReaderCalls, shown_certificate
from receiver.tablet_copies.copies_wire import FilePlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from common.network.client_certificate import ClientCertificate
    from receiver.storage.reading.stored_place import ReceiverAddress

__all__ = ["TOKEN", "TOKEN_PATH", "ReceiverReads", "reader_token"]

TOKEN = "TSFERRY_READER_TOKEN"  # noqa: S105  # names of variables, not what is in them
TOKEN_PATH = "TSFERRY_READER_TOKEN_FILE"  # noqa: S105
_AT_ONCE = 4
"""Requests of this process: a receiver has other things to do."""
_PATIENCE = 60.0
"""Seconds for which a receiver that is busy is asked again."""
_PAUSE = 0.2
_UNTIL_ONE_LEADS = 60.0
"""Seconds for which several are asked of which none leads: a lease, and the start of a receiver."""


def reader_token(environ: Mapping[str, str]) -> str | None:
    """The token that this process reads by; None if its environment has none.

    Raises:
        UsageError: the file that is named there cannot be read.
    """
    if environ.get(TOKEN):
        return environ[TOKEN].strip()
    if not environ.get(TOKEN_PATH):
        return None
    try:
        return Path(environ[TOKEN_PATH]).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{TOKEN_PATH}: expected a readable file with a token: {error}") from error


class ReceiverReads:
    """Reads of one receiver; any thread may call."""

    def __init__(
        self,
        address: ReceiverAddress,
        token: str | None = None,
        *,
        certificate: ClientCertificate | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nothing yet.

        Args:
            address: of the receiver.
            token: that the process was given otherwise; without one its environment is looked at.
            certificate: that is shown to it, if not that of the address; with one the environment
                is not looked at.
            sleep: waits for so many seconds.
            monotonic: seconds.

        Raises:
            UsageError: the token cannot be read, or would travel where others can read it.
        """
        self.url = address.url
        self._address = address
        self._certificate = certificate or shown_certificate(
            address.client_cert, address.client_key, address.ca_cert, OPTION_NAMES
        )
        self._given = bool(token) or self._certificate is not None
        self._token = token if self._given else reader_token(os.environ)
        self._calls = self._calls_by(self._token)
        self._changing = threading.Lock()
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        self._sleep, self._monotonic = sleep, monotonic

    def read(self, physical: str, begin: int, length: int) -> bytes:
        """So many bytes at an offset.

        Raises:
            UnreachableError: it does not answer.
            TsferryError: as it refused.
        """
        got: list[bytes] = []
        while length:
            wanted = {"Range": f"bytes={begin}-{begin + length - 1}"}
            piece = self._ask("content", physical, wanted)
            if not 0 < len(piece) <= length:
                raise ProtocolError(f"{self.url}: {len(piece)} bytes of {length} of {physical}")
            got.append(piece)
            begin, length = begin + len(piece), length - len(piece)
        return got[0] if len(got) == 1 else b"".join(got)

    def digests(self, physical: str) -> bytes:
        """Those of the blocks of a file, as `BlockDigests.pack` has them; raises as `read`."""
        return self._ask("digests", physical, {})

    def where(self, physical: str) -> FilePlaces:
        """Storage nodes that give a file; raises as `read`."""
        got = self._ask_at("/v1/copies/where", physical, {})
        return wire.decode(got, FilePlaces, f"{self.url}/v1/copies/where")

    def close(self) -> None:
        """Let go of connections."""
        self._calls.close()

    def _ask(self, what: str, physical: str, headers: Mapping[str, str]) -> bytes:
        return self._ask_at(f"{wire.BASE}/catalogue/{what}", physical, headers)

    def _ask_at(self, path: str, physical: str, headers: Mapping[str, str]) -> bytes:
        until = self._monotonic() + _PATIENCE
        with self._places:
            while True:
                calls = self._calls
                try:
                    return calls.get(path, {"path": physical}, headers)
                except (UnauthorizedError, ForbiddenError) as error:
                    if self._is_renewed(calls):
                        continue
                    raise type(error)(
                        f"{self.url}: {error.message}; whoever reads there has the token of a "
                        f"reader in {TOKEN}, or in a file that {TOKEN_PATH} names"
                    ) from error
                except BusyError as error:
                    pause = error.retry_after or _PAUSE
                    if self._monotonic() + pause > until:
                        raise
                    self._sleep(pause)

    def _calls_by(self, token: str | None) -> ReaderCalls:
        address = self._address
        return ReaderCalls(
            address.url,
            token=token,
            ca_cert=address.ca_cert,
            certificate=self._certificate,
            what="the receiver's URL",
            patience=_UNTIL_ONE_LEADS,
        )

    def _is_renewed(self, refused: ReaderCalls) -> bool:
        """Whether there is another token by now than the one that was refused."""
        with self._changing:
            if self._calls is not refused:
                return True
            token = None if self._given else reader_token(os.environ)
            if token is None or token == self._token:
                return False
            self._token, self._calls = token, self._calls_by(token)
            return True
